package golden

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// records are of two versions of Redisson. The steps are the same.
var records = []string{"redisson-4.7.0.txt", "redisson-3.52.0.txt"}

// calls of each section, by its name in the records.
var calls = map[string]func(*stage){
	"RLock":                  reentrantLock,
	"RLock name with braces": namedWithBraces,
	"non-reentrant and spin": spinLock,
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
	played := make(map[string]section)
	for _, file := range records {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) {
			record := readRecord(t, file)
			for _, theirs := range record {
				t.Run(theirs.name, func(t *testing.T) {
					make, ok := calls[theirs.name]
					require.True(t, ok, "nobody plays this section")
					ours, ok := played[theirs.name]
					if !ok {
						ours = play(t, theirs.name, make)
						played[theirs.name] = ours
					}
					for _, fault := range compare(theirs, ours, differences) {
						t.Error(fault)
					}
				})
			}
			for _, fault := range unknown(record) {
				t.Error(fault)
			}
		})
	}
}

// unknown finds what is played or excused, and in no record.
func unknown(record []section) (faults []string) {
	there := make(map[string]bool)
	for _, s := range record {
		there[s.name] = true
	}
	for name := range calls {
		if !there[name] {
			faults = append(faults, "played, and not in the record: "+name)
		}
	}
	for _, d := range differences {
		if !there[d.section] {
			faults = append(faults, "excused, and not in the record: "+d.section)
		}
	}
	return faults
}
