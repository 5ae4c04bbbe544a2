package inspect

import (
	"crypto/rand"
	"strings"
)

// mapper knows how a client's names become keys, and back.
type mapper struct {
	key           func(name string) string
	before, after string // what key puts around a name, if it does just that
	around        bool
}

// newMapper finds out what a client's name mapper does by having it map a name.
func newMapper(key func(string) string) mapper {
	probe := rand.Text()
	m := mapper{key: key}
	m.before, m.after, m.around = strings.Cut(key(probe), probe)
	return m
}

// pattern is one for keys, where p is one for names.
func (m mapper) pattern(p string) string {
	if !m.around {
		return p
	}
	return literal(m.before) + p + literal(m.after)
}

// name is the one that became key, or key itself if that can't be told.
func (m mapper) name(key string) string {
	if !m.around {
		return key
	}
	name, front := strings.CutPrefix(key, m.before)
	name, back := strings.CutSuffix(name, m.after)
	if !front || !back || m.key(name) != key {
		return key
	}
	return name
}

// literal is a pattern that matches s alone.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
