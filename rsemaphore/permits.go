package rsemaphore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/object"
	"github.com/holdfast-go/holdfast/internal/script"
)

var (
	//go:embed expired.lua
	expiredSrc string
	//go:embed permits_acquire.lua
	acquirePermitsSrc string
	//go:embed permits_release.lua
	releasePermitsSrc string
	//go:embed permits_extend.lua
	extendPermitSrc string
	//go:embed permits_resume.lua
	resumePermitSrc string
	//go:embed permits_set.lua
	setPermitsSrc string
	//go:embed permits_renew.lua
	renewPermitsSrc string
	//go:embed permits_look.lua
	lookSrc string

	acquirePermits = expiring("permits_acquire.lua", acquirePermitsSrc)
	releasePermits = expiring("permits_release.lua", releasePermitsSrc)
	extendPermit   = expiring("permits_extend.lua", extendPermitSrc)
	resumePermit   = expiring("permits_resume.lua", resumePermitSrc)
	setPermits     = expiring("permits_set.lua", setPermitsSrc)
	renewPermits   = script.New("permits_renew.lua", renewPermitsSrc)
	lookScript     = script.New("permits_look.lua", lookSrc)
)

// expiring makes a script that opens with marker.lua, number.lua and expired.lua.
func expiring(name, src string) *script.Script { return counting(name, expiredSrc+src) }

// id is the 16 random bytes by which a permit is known in Redis.
type id string

// String is the id as users see it: 32 hex digits.
func (i id) String() string { return hex.EncodeToString([]byte(i)) }

func newIDs(n int) []id {
	ids := make([]id, n)
	b := make([]byte, 16*n)
	_, _ = rand.Read(b) // crypto/rand never fails: it aborts the program instead
	for i := range ids {
		ids[i] = id(b[16*i : 16*i+16])
	}
	return ids
}

func appendIDs(argv []any, ids []id) []any {
	for _, i := range ids {
		argv = append(argv, string(i))
	}
	return argv
}

// parseID reads an id that a user gives. A text that can be none is not held, and
// wrong besides.
func parseID(name, text string) (id, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 16 {
		return "", fmt.Errorf("%w, %w", errs.Invalid("%s is no id of a permit, which has 32 hex digits", errs.Quote(text)),
			&errs.NotHeldError{Name: name, Reason: errs.NeverHeld})
	}
	return id(b), nil
}

// parseIDs reads ids, each of which counts once.
func (e *expirable) parseIDs(what string, texts []string) ([]id, error) {
	if len(texts) > maxAtOnce {
		return nil, errs.Invalid("%s %s: %d permits: give at most %d", what, errs.Quote(e.c.Name()), len(texts), maxAtOnce)
	}
	ids := make([]id, 0, len(texts))
	seen := make(map[id]bool, len(texts))
	for _, text := range texts {
		i, err := parseID(e.c.Name(), text)
		if err != nil {
			return nil, err
		}
		if !seen[i] {
			seen[i] = true
			ids = append(ids, i)
		}
	}
	return ids, nil
}

// renewal is shared by all permits.
var renewal = &lease.Renewal{Call: func(ks, ids []string, d time.Duration) script.Call {
	sets := make([]string, len(ks))
	argv := append(make([]any, 0, 1+len(ids)), d.Milliseconds())
	for i, k := range ks {
		sets[i] = permitsKey(k)
		raw, _ := hex.DecodeString(ids[i]) // of id.String
		argv = append(argv, string(raw))
	}
	return script.NewCall(renewPermits, sets, argv...)
}}

func releaseCall(c *counter, k script.Keys, all bool, ids []id) script.Call {
	ifAll := 0
	if all {
		ifAll = 1
	}
	argv := append(make([]any, 0, 3+len(ids)), c.channelArg, ifAll, len(ids))
	return script.NewMutation(releasePermits, k, nil, appendIDs(argv, ids)...)
}

// release sends a release. counted says that somebody wants to know how many were
// there. A negative answer is that of permits_release.lua; else it is a number.
func (e *expirable) release(ctx context.Context, all bool, ids []id, counted bool) (int, error) {
	call := releaseCall(e.c, e.c.keys(), all, ids)
	if counted {
		call = call.AlwaysMark()
	}
	reply, err := e.c.Request(ctx, "release of", object.Eventually, call)
	if err != nil {
		return 0, err
	}
	n := int(reply.Int())
	switch {
	case n >= 0:
		e.c.heard(n&1 == 1)
		return n / 2, nil
	case reply.Resent && !counted:
		// A further copy that finds nothing comes after one that did the work: the
		// permits were ours when the first was sent.
		return len(ids), nil
	}
	return n, nil
}

// Release gives permits back by their ids, whoever took them: all or none. It does
// so even if ctx has ended. Errors: ErrNotHeld if one of them is unknown or has
// expired, in which case nothing was changed, and ErrInvalid besides if it can be
// none; ErrInvalid also for more than 10,000; ErrUncertain if no answer came, or
// ctx ended meanwhile: the release goes on behind the caller for up to a minute;
// ErrUnavailable if nothing could be sent, likewise; ErrDenied; ErrClosed. A
// permit that this client took is over with it: its renewal ends. Redisson:
// release(String), release(List).
func (e *Expirable) Release(ctx context.Context, ids ...string) error {
	_, err := e.releaseIDs(ctx, true, ids)
	return err
}

// TryRelease gives back those of the permits that are there, and answers how many.
// Errors: as Release, but for ErrNotHeld. Redisson: tryRelease.
func (e *Expirable) TryRelease(ctx context.Context, ids ...string) (int, error) {
	return e.releaseIDs(ctx, false, ids)
}

func (e *expirable) releaseIDs(ctx context.Context, all bool, texts []string) (int, error) {
	ids, err := e.parseIDs("release of", texts)
	if err != nil || len(ids) == 0 {
		return 0, joined(err, e.c.Check(context.Background(), "release of"))
	}
	// Not renewed while it is under way: a renewal that found one gone would call it
	// lost.
	ours := e.ledger.find(e.c.RedisKey(), ids)
	for _, r := range ours {
		e.ledger.Watchdog.Stop(&r.lease)
	}
	n, err := e.release(ctx, all, ids, true)
	switch {
	case err != nil && !errors.Is(err, errs.ErrUncertain) && !errors.Is(err, errs.ErrUnavailable):
		for _, r := range ours {
			e.ledger.Watchdog.Keep(&r.lease)
		}
		return 0, err
	case n < 0:
		unknown := ids[-n-1]
		for _, r := range ours {
			if r.id == unknown {
				r.end(lost, fmt.Errorf("%w: %s: permit %v was gone at a release", errs.ErrLost, errs.Quote(e.c.Name()), unknown))
				continue
			}
			e.ledger.Watchdog.Keep(&r.lease)
		}
		return 0, fmt.Errorf("permit %v: %w", unknown, &errs.NotHeldError{Name: e.c.Name(), Reason: errs.NeverHeld})
	}
	for _, r := range ours {
		if r.end(givenBack, errs.ErrReleased) {
			r.tellReleased(err)
		}
	}
	return n, err
}

// joined is errors.Join that leaves a single error as it is.
func joined(first, second error) error {
	switch {
	case second == nil:
		return first
	case first == nil:
		return second
	}
	return errors.Join(first, second)
}

// Extend gives a permit, whoever took it, a lease of at least d from now; a fixed
// lease counts anew. It never shortens one. Errors: ErrInvalid for a d that is not
// positive; ErrNotHeld if the permit is unknown or has expired, with ErrInvalid if
// it can be none; ErrUncertain if no answer came; ErrUnavailable; ErrDenied;
// ErrClosed; the context's. Redisson: updateLeaseTime.
func (e *Expirable) Extend(ctx context.Context, id string, d time.Duration) error {
	i, err := parseID(e.Name(), id)
	if err != nil {
		return err
	}
	if d <= 0 {
		return errs.Invalid("extend a permit of %s by %v: give a positive time", errs.Quote(e.Name()), d)
	}
	return e.extend(ctx, i, lease.Round(d))
}

func (e *expirable) extend(ctx context.Context, i id, d time.Duration) error {
	call := script.NewMutation(extendPermit, e.c.keys(), nil, string(i), d.Milliseconds(), e.c.channelArg).Replicated(isThere)
	reply, err := e.c.Request(ctx, "extend a permit of", object.AtMostNow, call)
	if err != nil {
		return err
	}
	r := e.ledger.findOne(e.c.RedisKey(), i)
	if reply.Int() == missing {
		if r != nil {
			r.end(lost, fmt.Errorf("%w: %s: permit %v was gone when it was extended", errs.ErrLost, errs.Quote(e.c.Name()), i))
			return r.notHeld()
		}
		return fmt.Errorf("permit %v: %w", i, &errs.NotHeldError{Name: e.c.Name(), Reason: errs.NeverHeld})
	}
	if r != nil && r.lease.Extend(reply.Asked, d) {
		e.ledger.Watchdog.Reschedule(&r.lease)
	}
	return nil
}

// isThere reports whether permits_extend.lua found the permit.
func isThere(answer any) bool { return answer == int64(done) }

// LeaseOf is how long a permit lasts unless it is renewed; negative if it never
// expires, as one of Redisson's without a lease. Errors: ErrNotHeld if it is
// unknown or has expired, with ErrInvalid if it can be none; else as Permits.
// Redisson: getLeaseTime.
func (e *Expirable) LeaseOf(ctx context.Context, id string) (time.Duration, error) {
	i, err := parseID(e.Name(), id)
	if err != nil {
		return 0, err
	}
	n, err := e.look(ctx, &i)
	if err == nil && n.lasts == 0 {
		err = fmt.Errorf("permit %v: %w", i, &errs.NotHeldError{Name: e.Name(), Reason: errs.NeverHeld})
	}
	return n.lasts, err
}

// numbers are what permits_look.lua reads.
type numbers struct {
	free, used int64
	lasts      time.Duration
}

func (e *expirable) look(ctx context.Context, i *id) (numbers, error) {
	const what = "look at"
	var argv []any
	if i != nil {
		argv = []any{string(*i)}
	}
	key := e.c.RedisKey()
	call := script.NewCall(lookScript, []string{key, permitsKey(key)}, argv...)
	var refused error
	n, err := object.Ask(ctx, e.c.Object, what, func(ctx context.Context) (numbers, error) {
		reply := e.c.Send(ctx, e.c.Patience, call)
		if refused = reply.Err; refused != nil {
			return numbers{}, nil
		}
		return readNumbers(reply.Val)
	})
	switch {
	case err != nil:
		return n, err
	case script.IsWrongType(refused):
		return n, e.c.Foreign(ctx, refused)
	case refused != nil:
		return n, fmt.Errorf("holdfast: %s %s: %w", what, errs.Quote(e.c.Name()), refused)
	}
	return n, nil
}

// readNumbers reads the answer of permits_look.lua.
func readNumbers(answer any) (n numbers, err error) {
	got, _ := answer.([]any)
	if len(got) < 4 {
		return n, fmt.Errorf("permits_look.lua answered %v", answer)
	}
	text, _ := got[0].(string)
	expired, _ := got[1].(int64)
	n.used, _ = got[2].(int64)
	lasts, _ := got[3].(int64)
	n.lasts = time.Duration(lasts) * time.Millisecond
	if text == "" {
		return n, nil
	}
	n.free, err = parseNumber(text)
	n.free += expired
	return n, err
}
