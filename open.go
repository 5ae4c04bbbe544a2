package holdfast

import (
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// Open makes a client with a connection of its own, which Close closes. Forms
// of url:
//
//	redis://[user:password@]host:port/db            rediss:// with TLS
//	unix://[user:password@]/path/to/socket?db=n
//	redis+sentinel://[user:password@]h1:p1,h2:p2/db?master=name   rediss+sentinel://
//	redis+cluster://[user:password@]h1:p1,h2:p2     rediss+cluster://
//
// Query parameters of go-redis' URLs (read_timeout, pool_size, …) work in all
// of them. Errors: ErrInvalid, which never shows the password. Nothing is sent.
func Open(url string, opts ...Option) (*Client, error) {
	set, err := collect(opts)
	if err != nil {
		return nil, err
	}
	rdb, err := Dial(url)
	if err != nil {
		return nil, err
	}
	return newClient(rdb, rdb, set), nil
}

// Dial makes the go-redis client that Open would use, for callers who need both:
// give it to New, and close it after the holdfast client. Errors: ErrInvalid.
// Nothing is sent.
func Dial(url string) (redis.UniversalClient, error) {
	// go-redis' own errors quote the URL, password and all: none is passed on.
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errs.Invalid("Redis URL has no scheme: write redis://host:6379/0, or see Open for its forms")
	}
	base, topology, _ := strings.Cut(scheme, "+")
	switch {
	case topology == "" && (base == "redis" || base == "rediss" || base == "unix"):
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, badURL(scheme)
		}
		return redis.NewClient(o), nil
	case base != "redis" && base != "rediss":
	case topology == "sentinel":
		u, hosts, err := split(base, rest)
		if err != nil {
			return nil, badURL(scheme)
		}
		q := u.Query()
		if q.Get("master") == "" {
			return nil, errs.Invalid("Redis URL for sentinel names no master: append ?master=<name>")
		}
		rename(q, "master", "master_name")
		more(q, hosts)
		u.RawQuery = q.Encode()
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, badURL(scheme)
		}
		return redis.NewFailoverClient(o), nil
	case topology == "cluster":
		u, hosts, err := split(base, rest)
		if err != nil {
			return nil, badURL(scheme)
		}
		q := u.Query()
		more(q, hosts)
		u.RawQuery = q.Encode()
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, badURL(scheme)
		}
		return redis.NewClusterClient(o), nil
	}
	return nil, errs.Invalid("Redis URL has scheme %q: Open knows redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster", scheme)
}

func badURL(scheme string) error {
	return errs.Invalid("Redis URL with scheme %q can't be read: see Open for its form, and escape special characters of the password", scheme)
}

// split takes the further hosts out of h1,h2,h3, of which a URL may have one.
func split(scheme, rest string) (*url.URL, []string, error) {
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, list := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(list, ",")
	u, err := url.Parse(scheme + "://" + user + hosts[0] + path)
	return u, hosts[1:], err
}

// more adds hosts the way go-redis reads them.
func more(q url.Values, hosts []string) {
	for _, h := range hosts {
		q.Add("addr", h)
	}
}

func rename(q url.Values, from, to string) {
	q[to] = q[from]
	delete(q, from)
}
