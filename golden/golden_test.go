package golden

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest/record"
)

// records are of two versions of Redisson. The steps are the same, but for locks
// that only the newer one has.
var records = []string{"redisson-4.7.0.txt", "redisson-4.7.0-only.txt", "redisson-3.52.0.txt"}

// calls of each section, by its name in the records.
var calls = map[string]func(*stage){
	"RLock":                  reentrantLock,
	"RLock name with braces": namedWithBraces,
	"non-reentrant and spin": spinLock,
	"NonReentrantLock":       onceOnly,
	"NonReentrantFairLock":   onceOnlyFair,
	"RFencedLock":            fencedLock,
	"MultiLock":              multiLock,
	"FairLock":               fairLock,
	"ReadWriteLock":          readWriteLock,
	"ReadWriteLock: many readers of different threads": manyReaders,
	"RateLimiter":                     rateLimiter,
	"Semaphore":                       semaphore,
	"PermitExpirableSemaphore":        expirable,
	"CountDownLatch":                  latch,
	"CountDownLatch name with braces": latchWithBraces,
}

// What holdfast leaves after each call is what Redisson leaves, but for the
// listed differences; every section and every step of the records is played.
func TestRecords(t *testing.T) {
	played := make(map[string]record.Section)
	var all []record.Section
	for _, file := range records {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) {
			theirSections := record.Read(t, "testdata/"+file)
			all = append(all, theirSections...)
			for _, theirs := range theirSections {
				t.Run(theirs.Name, func(t *testing.T) {
					make, ok := calls[theirs.Name]
					require.True(t, ok, "nobody plays this section")
					ours, ok := played[theirs.Name]
					if !ok {
						ours = play(t, theirs.Name, make)
						played[theirs.Name] = ours
					}
					for _, fault := range record.Compare(theirs, ours, differences) {
						t.Error(fault)
					}
				})
			}
		})
	}
	for _, fault := range unknown(all) {
		t.Error(fault)
	}
}

// unknown finds what is played or excused, and in no record.
func unknown(sections []record.Section) (faults []string) {
	there := make(map[string]bool)
	for _, s := range sections {
		there[s.Name] = true
	}
	for name := range calls {
		if !there[name] {
			faults = append(faults, "played, and not in the record: "+name)
		}
	}
	for _, d := range differences {
		if !there[d.Section] {
			faults = append(faults, "excused, and not in the record: "+d.Section)
		}
	}
	return faults
}
