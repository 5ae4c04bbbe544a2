package inspect

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// Text is s as it can be printed on one line: escaped as in Go, without quotes.
func Text(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// The form of an Info in JSON. Times are RFC 3339, durations whole milliseconds.
type (
	jsonInfo struct {
		Name string `json:"name"`
		// NameBytes are the name where JSON can't hold it as text.
		NameBytes []byte       `json:"nameBase64,omitempty"`
		Key       string       `json:"key,omitempty"` // if it is another one
		Kind      Kind         `json:"kind"`
		Type      string       `json:"type"`
		Held      bool         `json:"held"`
		At        time.Time    `json:"at"`
		TTL       *int64       `json:"ttlMs,omitempty"` // -1: no expiry
		Mode      string       `json:"mode,omitempty"`
		Holders   []jsonHolder `json:"holders,omitempty"`
		HolderNum int          `json:"holderCount,omitempty"`
		Token     int64        `json:"token,omitempty"`
		Queue     []jsonWaiter `json:"queue,omitempty"`
		QueueLen  int          `json:"queueLength,omitempty"`
		Writers   []jsonWaiter `json:"waitingWriters,omitempty"`
		Readers   []jsonWaiter `json:"waitingReaders,omitempty"`
		Value     *int64       `json:"value,omitempty"`
		Permits   []jsonPermit `json:"permits,omitempty"`
		PermitNum int          `json:"permitCount,omitempty"`
		Rate      *jsonRate    `json:"rate,omitempty"`
		Listeners int64        `json:"listeners"`
	}
	jsonHolder struct {
		Owner string `json:"owner"`
		Count int64  `json:"count"`
		Mode  string `json:"mode,omitempty"`
		TTL   int64  `json:"ttlMs"`
	}
	jsonWaiter struct {
		Owner string     `json:"owner"`
		Until *time.Time `json:"until,omitempty"`
		Alive bool       `json:"alive"`
	}
	jsonPermit struct {
		ID      string     `json:"id"`
		Expires *time.Time `json:"expires,omitempty"` // absent: never
	}
	jsonRate struct {
		Permits   int64  `json:"permits"`
		Interval  int64  `json:"intervalMs"`
		PerClient bool   `json:"perClient"`
		KeepAlive int64  `json:"keepAliveMs,omitempty"`
		Available *int64 `json:"available,omitempty"`
	}
)

// MarshalJSON is an object with times in RFC 3339 and durations in milliseconds.
// Names and owners that JSON can't hold as text are escaped as in Go; nameBase64
// then has the name byte by byte.
func (i Info) MarshalJSON() ([]byte, error) {
	j := jsonInfo{
		Name: i.Name, Kind: i.Kind, Type: i.Type, Held: i.Held(), At: i.At.UTC(), Mode: i.Mode,
		HolderNum: i.HolderCount, Token: i.Token, QueueLen: i.QueueLen, PermitNum: i.PermitCount,
		Queue: jsonWaiters(i.Queue), Writers: jsonWaiters(i.Writers), Readers: jsonWaiters(i.Readers),
		Listeners: i.Listeners,
	}
	if !utf8.ValidString(i.Name) {
		j.Name, j.NameBytes = Text(i.Name), []byte(i.Name)
	}
	if i.Key != i.Name {
		j.Key = valid(i.Key)
	}
	if i.TTL != 0 {
		ttl := millis(i.TTL)
		j.TTL = &ttl
	}
	for _, h := range i.Holders {
		j.Holders = append(j.Holders, jsonHolder{valid(h.Owner), h.Count, h.Mode, millis(h.TTL)})
	}
	switch i.Kind {
	case Semaphore, ExpirableSemaphore, Latch, Counter:
		j.Value = &i.Value
	}
	for _, p := range i.Permits {
		j.Permits = append(j.Permits, jsonPermit{p.ID, some(p.Expires)})
	}
	if r := i.Rate; r != nil {
		j.Rate = &jsonRate{Permits: r.Permits, Interval: r.Interval.Milliseconds(), PerClient: r.PerClient, KeepAlive: r.KeepAlive.Milliseconds()}
		if r.Available >= 0 {
			j.Rate.Available = &r.Available
		}
	}
	return json.Marshal(j)
}

func jsonWaiters(ws []Waiter) (js []jsonWaiter) {
	for _, w := range ws {
		js = append(js, jsonWaiter{valid(w.Owner), some(w.Until), w.Alive})
	}
	return js
}

// valid is s, escaped if JSON can't hold it.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return Text(s)
}

func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// millis are whole milliseconds; -1 stands for no expiry.
func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}
