package holdfast

import (
	"cmp"
	"errors"
	neturl "net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Open makes a client with a connection of its own, which Close closes. Forms
// of url:
//
//	redis://[user:password@]host:port/db            rediss:// with TLS
//	unix://[user:password@]/path/to/socket?db=n
//	redis+sentinel://[user:password@]h1[:p1],h2[:p2]/db?master=name   rediss+sentinel://
//	redis+cluster://[user:password@]h1[:p1],h2[:p2]     rediss+cluster://
//
// User and password are those of Redis; where the sentinels have their own, they
// go into sentinel_username and sentinel_password. Ports default to 6379, those
// of sentinels to 26379. Query parameters of go-redis' URLs (read_timeout, pool_size, …) work in all
// of them; dial_timeout defaults to the command timeout (WithCommandTimeout).
//
// With TLS, servers are trusted by the system's roots, or by those of the PEM file
// tls_ca_file alone. tls_cert_file and tls_key_file are the client's own certificate
// and key, which are read again for every connection. A server has to have a
// certificate for the host it is reached by, or for tls_server_name. (For anything
// else set go-redis' TLSConfig, and give its client to New.)
//
// Errors: ErrInvalid, which never shows the password. Nothing is sent.
func Open(url string, opts ...Option) (*Client, error) {
	set, err := collect(opts)
	if err != nil {
		return nil, err
	}
	rdb, err := dial(url, set.patience)
	if err != nil {
		return nil, err
	}
	if err := set.checkReplicas(rdb); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return newClient(rdb, rdb, set), nil
}

// Dial makes the go-redis client that Open would use, for callers who need both:
// give it to New, and close it after the holdfast client. It dials for as long as
// dial_timeout in the URL says, 5 s by default, where Open takes the time of a
// command. Errors: ErrInvalid. Nothing is sent.
func Dial(url string) (redis.UniversalClient, error) { return dial(url, 0) }

// dial is Dial with the time for one connection, if the URL doesn't say.
func dial(url string, timeout time.Duration) (redis.UniversalClient, error) {
	// go-redis' own errors quote the URL, password and all: none is passed on.
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errs.Invalid("Redis URL has no scheme: write redis://host:6379/0, rediss://…, unix://…, redis+sentinel://… or redis+cluster://…")
	}
	if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+") != "" { // may be part of a password
		return nil, errs.Invalid("Redis URL begins with no scheme: write redis://host:6379/0, rediss://…, unix://…, redis+sentinel://… or redis+cluster://…")
	}
	base, topology, _ := strings.Cut(scheme, "+")
	switch {
	case topology == "" && base != "unix" && severalHosts(rest):
		return nil, errs.Invalid("Redis URL with scheme %q names several hosts: write %s+cluster://h1,h2, or %s+sentinel://h1,h2/0?master=name", scheme, scheme, scheme)
	case topology == "" && (base == "redis" || base == "rediss" || base == "unix"):
		u, err := neturl.Parse(url)
		if err != nil {
			return nil, badURL(scheme)
		}
		q := u.Query()
		files := takeTLS(q)
		if files != (tlsFiles{}) {
			u.RawQuery = q.Encode()
			url = u.String()
		}
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, unreadable(scheme, rest, err)
		}
		if err := files.secure(o.TLSConfig, false, &o.Dialer); err != nil {
			return nil, err
		}
		o.DialerRetries, o.DialTimeout = tries(o.DialerRetries), cmp.Or(o.DialTimeout, timeout)
		return redis.NewClient(o), nil
	case base != "redis" && base != "rediss":
	case topology == "sentinel":
		u, hosts, err := split(base, rest, "26379")
		if err != nil {
			return nil, badURL(scheme)
		}
		q := u.Query()
		if q.Get("master") == "" {
			return nil, errs.Invalid("Redis URL for sentinel names no master: append ?master=<name>")
		}
		rename(q, "master", "master_name")
		sentinelUser, sentinelPassword := take(q, "sentinel_username"), take(q, "sentinel_password")
		files := takeTLS(q)
		more(q, hosts)
		user := u.User
		u.User, u.RawQuery = nil, q.Encode() // go-redis would give the user to the sentinels
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, unreadable(scheme, rest, err)
		}
		if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, errs.Invalid("Redis URL for sentinel sends commands to replicas, which hold no locks: leave out route_by_latency, route_randomly and replica_only")
		}
		if err := files.secure(o.TLSConfig, true, &o.Dialer); err != nil {
			return nil, err
		}
		o.SentinelUsername, o.SentinelPassword = sentinelUser, sentinelPassword
		if user != nil {
			o.Username = user.Username()
			o.Password, _ = user.Password()
		}
		o.DialerRetries, o.DialTimeout = tries(o.DialerRetries), cmp.Or(o.DialTimeout, timeout)
		return redis.NewFailoverClient(o), nil
	case topology == "cluster":
		u, hosts, err := split(base, rest, "6379")
		if err != nil {
			return nil, badURL(scheme)
		}
		q := u.Query()
		files := takeTLS(q)
		more(q, hosts)
		u.RawQuery = q.Encode()
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, unreadable(scheme, rest, err)
		}
		if err := files.secure(o.TLSConfig, true, &o.Dialer); err != nil {
			return nil, err
		}
		o.DialerRetries, o.DialTimeout = tries(o.DialerRetries), cmp.Or(o.DialTimeout, timeout)
		return redis.NewClusterClient(o), nil
	}
	return nil, errs.Invalid("Redis URL has scheme %q: known are redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster", scheme)
}

// tries is how often go-redis tries to connect for one command: once, since it is
// sent again here, and five times would be longer than anybody waits.
func tries(said int) int { return cmp.Or(said, 1) }

func badURL(scheme string) error {
	return errs.Invalid("Redis URL with scheme %q can't be read: write scheme://[user:password@]host:port/…, and escape special characters of the password", scheme)
}

// unreadable is badURL, unless go-redis found a parameter that it doesn't know: then
// the error names that one. What may be a piece of a password, which was not
// escaped, is no name: behind such a one there is an @.
func unreadable(scheme, rest string, err error) error {
	_, query, _ := strings.Cut(rest, "?")
	_, list, unknown := strings.Cut(err.Error(), "redis: unexpected option: ")
	if !unknown || strings.ContainsAny(query, "@#") {
		return badURL(scheme)
	}
	for name := range strings.SplitSeq(list, ", ") {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || !strings.Contains("&"+query, "&"+name+"=") {
			return badURL(scheme)
		}
	}
	return errs.Invalid("Redis URL with scheme %q has a parameter that is not known: %s (names are those of go-redis' URLs, such as read_timeout)", scheme, list)
}

// severalHosts reports whether a URL of a single server names more than one.
func severalHosts(rest string) bool {
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	hosts := authority[strings.LastIndexByte(authority, '@')+1:]
	return strings.Contains(hosts, ",") && !strings.Contains(path, "@")
}

// split takes the further hosts out of h1,h2,h3, of which a URL may have one, and
// gives each a port.
func split(scheme, rest, port string) (*neturl.URL, []string, error) {
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, list := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(list, ",")
	for i, h := range hosts {
		if strings.LastIndexByte(h, ':') <= strings.LastIndexByte(h, ']') { // [::1] has colons of its own
			hosts[i] = h + ":" + port
		}
	}
	u, err := neturl.Parse(scheme + "://" + user + hosts[0] + path)
	return u, hosts[1:], err
}

// more adds hosts the way go-redis reads them.
func more(q neturl.Values, hosts []string) {
	for _, h := range hosts {
		q.Add("addr", h)
	}
}

func take(q neturl.Values, name string) string {
	v := q.Get(name)
	delete(q, name)
	return v
}

func rename(q neturl.Values, from, to string) {
	q[to] = q[from]
	delete(q, from)
}
