package hold

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/errs"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/owner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle watches nothing.
type idle struct{}

func (idle) Keep(*lease.Lease)       {}
func (idle) Stop(*lease.Lease)       {}
func (idle) Reschedule(*lease.Lease) {}

// slow is a holder that is told of the end of its lease, and takes its time.
type slow struct {
	told, goOn chan struct{}
}

func (s slow) LeaseEnded(*lease.Lease, error) {
	close(s.told)
	<-s.goOn
}

func (slow) Orphaned() bool { return false }

// What travels between processes may arrive damaged.
func TestHandleOfNoMembers(t *testing.T) {
	for _, h := range []handle{{}, {Kind: GroupKind}, {Kind: GroupKind, Field: "f"}} {
		_, err := parseHandle(h.String())
		require.ErrorIs(t, err, errs.ErrInvalid)
	}
}

// Who gives a hold back whose lease has run out is told so, also while somebody else
// has just noticed it and hasn't come to the hold yet.
func TestEndedByAnotherMeanwhile(t *testing.T) {
	s := &Services{Watchdog: idle{}, Log: slog.New(slog.DiscardHandler)}
	n := &names{Services: s, name: "n", key: "n", ledgerKey: "n"}
	token := owner.Mint()
	e, _ := n.enter(token)
	defer e.exit()
	r := &record{entry: e}
	holder := slow{make(chan struct{}), make(chan struct{})}
	r.lease = &r.own
	r.own.Subject, r.own.Holder = &lease.Subject{Name: "n"}, holder
	r.own.Extend(time.Now().Add(-time.Hour), time.Minute)
	e.holds = append(e.holds, r)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.own.Expire(time.Now(), r.ranOut())
	}()
	<-holder.told
	_, err := e.take(r, time.Now(), false)
	close(holder.goOn)
	<-ended
	require.ErrorIs(t, err, errs.ErrNotHeld)
	require.ErrorIs(t, err, errs.ErrLost)
	require.ErrorIs(t, r.ended(), errs.ErrLost)
}
