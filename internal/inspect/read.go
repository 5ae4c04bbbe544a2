package inspect

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is what inspect.lua says, by label.
type answer map[string]any

func newAnswer(val any) answer {
	list, _ := val.([]any)
	a := make(answer, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		if label, ok := list[i].(string); ok {
			a[label] = list[i+1]
		}
	}
	return a
}

func (a answer) has(label string) bool { return a[label] != nil }

func (a answer) text(label string) string {
	s, _ := a[label].(string)
	return s
}

// number is a label's value as a whole number; 0 if it is none.
func (a answer) number(label string) int64 {
	switch v := a[label].(type) {
	case int64:
		return v
	case string:
		return whole(v)
	}
	return 0
}

func (a answer) list(label string) []any {
	l, _ := a[label].([]any)
	return l
}

// strings is a list of strings; what is none is empty.
func (a answer) strings(label string) []string {
	l := a.list(label)
	ss := make([]string, len(l))
	for i, v := range l {
		ss[i], _ = v.(string)
	}
	return ss
}

// listening is how many connections listen on one of Channels.
func (a answer) listening(channel int) (n int64) {
	if l := a.list("listening"); channel < len(l) {
		n, _ = l[channel].(int64)
	}
	return n
}

// whole reads a number as Redis writes scores and counts. Scores may come with an
// exponent.
func whole(s string) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f > 1<<62 || f < -1<<62 {
		return 0
	}
	return int64(f)
}

// neverExpires is the score of a permit without lease.
const neverExpires = 922337203685477

// Modes of a read-write lock.
const (
	read  = "read"
	write = "write"
)

// readInfo makes an Info of an answer.
func readInfo(name, key string, val any) Info {
	a := newAnswer(val)
	now := a.number("now")
	i := Info{
		Name: name, Key: key, Type: a.text("type"), At: time.UnixMilli(now), TTL: ttl(a.number("ttl")),
		Token: a.number("token"), QueueLen: int(a.number("waiting")),
	}
	for n := range a.list("listening") {
		i.Listeners += a.listening(n)
	}
	i.readQueue(a, now)
	i.Writers, i.Readers = waiters(a.strings("writers"), now), waiters(a.strings("readers"), now)
	switch i.Type {
	case "none":
		i.readAbsent(a, now)
	case "hash":
		i.readHash(a)
	case "string":
		i.readNumber(a, now)
	default:
		i.Kind = Unknown
	}
	return i
}

// ttl makes a time of what PTTL answers.
func ttl(ms int64) time.Duration {
	if ms == -1 {
		return -1
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

func (i *Info) readQueue(a answer, now int64) {
	q := a.strings("queue")
	for n := 0; n+2 < len(q); n += 3 {
		kept, life := whole(q[n+1]), q[n+2]
		w := Waiter{Owner: q[n], Alive: kept > now}
		if q[n+1] != "" {
			w.Until = time.UnixMilli(kept)
		}
		if life != "" {
			w.Alive = whole(life) >= now
		}
		i.Queue = append(i.Queue, w)
	}
}

// waiters are owners with the time until which it counts that they wait. The
// empty one is no owner.
func waiters(flat []string, now int64) (ws []Waiter) {
	for n := 0; n+1 < len(flat); n += 2 {
		if until := whole(flat[n+1]); flat[n] != "" {
			ws = append(ws, Waiter{Owner: flat[n], Until: time.UnixMilli(until), Alive: until > now})
		}
	}
	return ws
}

// readAbsent tells what is left, or waits, where the key isn't.
func (i *Info) readAbsent(a answer, now int64) {
	switch {
	case i.QueueLen > 0:
		i.Kind = FairLock
	case len(i.Writers)+len(i.Readers) > 0:
		i.Kind = RWLock
	case a.has("leases"):
		i.Kind = ExpirableSemaphore
		i.readPermits(a, now)
	case a.has("token"):
		i.Kind = FencedLock
	default:
		i.Kind = Free
	}
}

func (i *Info) readHash(a answer) {
	fields := a.strings("fields")
	at := func(name string) (string, bool) {
		for n := 0; n+1 < len(fields); n += 2 {
			if fields[n] == name {
				return fields[n+1], true
			}
		}
		return "", false
	}
	mode, _ := at("mode")
	rate, limited := at("rate")
	interval, _ := at("interval")
	switch {
	case mode == read || mode == write:
		i.Kind, i.Mode, i.HolderCount = RWLock, mode, int(a.number("len"))-1
		i.readReadersAndWriter(fields, a.list("lives"))
	case limited && isNumber(rate) && isNumber(interval):
		i.Kind = RateLimiter
		i.Rate = &Rate{Permits: whole(rate), Interval: time.Duration(whole(interval)) * time.Millisecond, Available: -1}
		kind, _ := at("type")
		keep, _ := at("keepAliveTime")
		i.Rate.PerClient, i.Rate.KeepAlive = kind == "1", time.Duration(whole(keep))*time.Millisecond
		if a.has("left") {
			i.Rate.Available = a.number("left")
		}
	case len(fields) == 2 && isNumber(fields[1]) && whole(fields[1]) > 0:
		i.Kind, i.HolderCount = Lock, 1
		i.Holders = []Holder{{Owner: fields[0], Count: whole(fields[1]), TTL: i.TTL}}
		switch {
		case i.QueueLen > 0:
			i.Kind = FairLock
		case a.has("token"):
			i.Kind = FencedLock
		}
	default:
		i.Kind = Unknown
	}
}

// readReadersAndWriter names who is in, the writer first.
func (i *Info) readReadersAndWriter(fields []string, lives []any) {
	next := 0
	for n := 0; n+1 < len(fields); n += 2 {
		if fields[n] == "mode" {
			continue
		}
		h := Holder{Owner: fields[n], Count: whole(fields[n+1]), Mode: read, TTL: i.TTL}
		if owner, ok := strings.CutSuffix(h.Owner, ":write"); ok {
			h.Owner, h.Mode = owner, write
		} else if next < len(lives) {
			life, _ := lives[next].(int64)
			h.TTL = ttl(life)
			next++
		}
		i.Holders = append(i.Holders, h)
	}
	slices.SortStableFunc(i.Holders, func(a, b Holder) int { return -strings.Compare(a.Mode, b.Mode) })
}

func (i *Info) readNumber(a answer, now int64) {
	text := a.text("text")
	i.Value = whole(text)
	switch {
	case !isNumber(text):
		i.Kind = Unknown
	case a.has("leases"):
		i.Kind = ExpirableSemaphore
		i.readPermits(a, now)
	case i.Value < 1, a.listening(0) > 0: // no latch stands at 0
		i.Kind = Semaphore
	case a.has("opened"), a.listening(1) > 0:
		i.Kind = Latch
	default:
		i.Kind = Counter
	}
}

// readPermits names the permits that are out. Those that expired are free, though
// nobody has moved them back yet.
func (i *Info) readPermits(a answer, now int64) {
	i.Value += a.number("expired")
	i.PermitCount = int(a.number("leased") - a.number("expired"))
	flat := a.strings("leases")
	for n := 0; n+1 < len(flat); n += 2 {
		expires := whole(flat[n+1])
		if expires <= now {
			continue
		}
		p := Permit{ID: hex.EncodeToString([]byte(flat[n]))}
		if expires < neverExpires {
			p.Expires = time.UnixMilli(expires)
		}
		i.Permits = append(i.Permits, p)
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}
