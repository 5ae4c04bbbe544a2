// Package keys makes the names that stand in Redis. They are a contract: Java
// services that run Redisson build the same ones.
package keys

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// MaxName is the longest name accepted, in bytes. Redis would take more; a
// longer one is a value that slipped into the place of a name.
const MaxName = 32 << 10

// Prefixed answers label:{n}, or label:n if n has braces of its own.
func Prefixed(label, n string) string {
	if strings.Contains(n, "{") {
		return label + ":" + n
	}
	return label + ":{" + n + "}"
}

// Suffixed answers {n}:label, or n:label if n has braces of its own.
func Suffixed(n, label string) string {
	if strings.Contains(n, "{") {
		return n + ":" + label
	}
	return "{" + n + "}:" + label
}

// Check refuses a name whose keys would not share one cluster slot, and one
// that is empty or absurdly long. It is the same on a single server, so that
// a name which works today works after a move to a cluster.
func Check(n string) error {
	if n == "" {
		return errs.Invalid("name is empty: a lock needs a name")
	}
	if len(n) > MaxName {
		return errs.Invalid("name %s is longer than %d bytes: use a shorter one, a hash of it for example", errs.Quote(n), MaxName)
	}
	_, after, ok := strings.Cut(n, "{")
	if !ok {
		if strings.Contains(n, "}") {
			return errs.Invalid("name %s has a '}' without '{': its helper keys would fall into another cluster slot; remove it or write a whole hash tag {…}", errs.Quote(n))
		}
		return nil
	}
	// Redis hashes what stands between the first '{' and the first '}' after
	// it, unless that is empty: then the whole key, which differs per key.
	if end := strings.IndexByte(after, '}'); end <= 0 {
		return errs.Invalid("name %s has a '{' that opens no hash tag: its helper keys would fall into another cluster slot; remove it or write a whole hash tag {…}", errs.Quote(n))
	}
	return nil
}

// Slot is the cluster slot of a key: CRC-16 (XMODEM) of its hash tag, or of the
// whole key without one (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
