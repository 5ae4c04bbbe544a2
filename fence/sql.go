package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DB is what a write goes through: *sql.DB, *sql.Tx or *sql.Conn. With a
// transaction the check holds for all of it: roll back on ErrStale.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Dialect is how a database spells names and parameters.
type Dialect int

// The dialects. Both know INSERT … ON CONFLICT … DO UPDATE … WHERE.
const (
	Postgres Dialect = iota
	SQLite           // 3.24 or newer
)

// Table is a table whose rows are fenced: each remembers, in a column of its own,
// the largest token that has written it. The column is an integer of 64 bits;
// NULL and 0 mean that no holder has written the row yet.
//
// A Table has no state; it may be used from any goroutine.
type Table struct {
	dialect                   Dialect
	table, key, fence, holder string // quoted; no holder: empty
	by                        string
}

// Names says what a table and its columns are called, as the database spells
// them: they are quoted, so that Postgres tells upper from lower case.
type Names struct {
	// Table may have a schema before it: "shop.orders".
	Table string
	// Key is the column that tells rows apart: a primary key, or unique.
	Key string
	// Fence is the column that holds the largest token.
	Fence string
	// Holder is the column, of text, that holds who has that token: see Table.By.
	// Empty: there is none.
	Holder string
}

// NewTable checks the names: letters, digits and underscores, not a digit first.
// Errors: holdfast.ErrInvalid. Nothing is sent.
func NewTable(d Dialect, n Names) (*Table, error) {
	if d != Postgres && d != SQLite {
		return nil, invalid("dialect %d is not known: choose Postgres or SQLite", d)
	}
	t := &Table{dialect: d}
	var parts []string
	for part := range strings.SplitSeq(n.Table, ".") {
		q, err := quote("table", part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, q)
	}
	t.table = strings.Join(parts, ".")
	var err error
	if t.key, err = quote("key column", n.Key); err != nil {
		return nil, err
	}
	if t.fence, err = quote("fence column", n.Fence); err != nil {
		return nil, err
	}
	if t.key == t.fence {
		return nil, invalid("key and fence are one column, %s", t.key)
	}
	if n.Holder == "" {
		return t, nil
	}
	if t.holder, err = quote("holder column", n.Holder); err != nil {
		return nil, err
	}
	if t.holder == t.key || t.holder == t.fence {
		return nil, invalid("the holder has the column %s of the key or the fence", t.holder)
	}
	return t, nil
}

// By is t for the writes of one holder: pass Hold.Owner. The same token from another
// holder is then ErrStale. Two holders have one token if Redis has lost the grant of
// the earlier, as a failover can; see the package comment. It needs Names.Holder, and a
// table with that column takes no writes without By: ErrInvalid, from each of them.
func (t *Table) By(holder string) *Table {
	by := *t
	by.by = holder
	return &by
}

// quote checks a name, so that none can carry SQL, and quotes it, so that a word
// of the language may be one.
func quote(what, name string) (string, error) {
	for i, r := range name {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9' {
			continue
		}
		return "", invalid("%s %q: names are made of letters, digits and underscores, and don't begin with a digit", what, name)
	}
	if name == "" {
		return "", invalid("the %s has no name", what)
	}
	return `"` + name + `"`, nil
}

// Assignment is a column and the value that it gets.
type Assignment struct {
	column string
	value  any
}

// Set gives a column a value, which goes to the database as a parameter. The
// column's name is checked where the assignment is used.
func Set(column string, value any) Assignment { return Assignment{column, value} }

// ErrNoRow says that there is no row with this key: nothing was changed.
var ErrNoRow = errors.New("fence: no such row")

// Update writes a row that exists, if no newer holder has:
//
//	UPDATE table SET …, fence = token WHERE key = … AND coalesce(fence, 0) <= token
//
// It is one statement, so nothing can come between check and write. Errors:
// ErrStale (a *StaleError); ErrNoRow; holdfast.ErrInvalid for a token that is
// none, a bad column, or no assignment; the database's own. In the first three
// cases nothing was written.
func (t *Table) Update(ctx context.Context, db DB, token int64, key any, set ...Assignment) error {
	if len(set) == 0 {
		return invalid("nothing to set: Claim raises the fence alone")
	}
	return t.update(ctx, db, token, key, set)
}

// Claim raises the fence of a row that exists and changes nothing else: from then
// on no earlier holder can write it. What to do first with a row that is read
// before it is written. Errors: as Update.
func (t *Table) Claim(ctx context.Context, db DB, token int64, key any) error {
	return t.update(ctx, db, token, key, nil)
}

func (t *Table) update(ctx context.Context, db DB, token int64, key any, set []Assignment) error {
	columns, err := t.check(token, set)
	if err != nil {
		return err
	}
	s := statement{dialect: t.dialect}
	s.text("UPDATE " + t.table + " SET ")
	for i, c := range columns {
		s.text(c + " = ").param(set[i].value).text(", ")
	}
	s.text(t.fence + " = ").param(token)
	if t.holder != "" {
		s.text(", " + t.holder + " = ").param(t.by)
	}
	s.text(" WHERE " + t.key + " = ").param(key)
	if t.holder == "" {
		s.text(" AND coalesce(" + t.fence + ", 0) <= ").param(token)
	} else {
		s.text(" AND (coalesce(" + t.fence + ", 0) < ").param(token)
		s.text(" OR " + t.fence + " = ").param(token)
		s.text(" AND (" + t.holder + " IS NULL OR " + t.holder + " = ").param(t.by).text("))")
	}
	return t.run(ctx, db, "update", s, token, key)
}

// Put writes a row whether it exists or not, if no newer holder has:
//
//	INSERT INTO table (key, fence, …) VALUES (…)
//	ON CONFLICT (key) DO UPDATE SET … WHERE coalesce(table.fence, 0) <= token
//
// Whoever deletes a row forgets what it had seen: a late Put of an earlier holder
// then passes. Keep the row and mark it instead. Errors: as Update, without
// ErrNoRow.
func (t *Table) Put(ctx context.Context, db DB, token int64, key any, set ...Assignment) error {
	columns, err := t.check(token, set)
	if err != nil {
		return err
	}
	s := statement{dialect: t.dialect}
	own := []string{t.key, t.fence}
	if t.holder != "" {
		own = append(own, t.holder)
	}
	s.text("INSERT INTO " + t.table + " (" + strings.Join(append(own, columns...), ", ") + ") VALUES (")
	s.param(key).text(", ").param(token)
	if t.holder != "" {
		s.text(", ").param(t.by)
	}
	for _, a := range set {
		s.text(", ").param(a.value)
	}
	s.text(") ON CONFLICT (" + t.key + ") DO UPDATE SET " + t.fence + " = excluded." + t.fence)
	for _, c := range append(own[2:], columns...) {
		s.text(", " + c + " = excluded." + c)
	}
	seen, whose := t.table+"."+t.fence, t.table+"."+t.holder
	if t.holder == "" {
		s.text(" WHERE coalesce(" + seen + ", 0) <= excluded." + t.fence)
	} else {
		s.text(" WHERE coalesce(" + seen + ", 0) < excluded." + t.fence)
		s.text(" OR " + seen + " = excluded." + t.fence + " AND (" + whose + " IS NULL OR " + whose + " = excluded." + t.holder + ")")
	}
	return t.run(ctx, db, "put", s, token, key)
}

// Seen is the largest token that has written the row: 0 if none has. Errors:
// ErrNoRow; the database's own.
func (t *Table) Seen(ctx context.Context, db DB, key any) (int64, error) {
	s := statement{dialect: t.dialect}
	s.text("SELECT " + t.fence + " FROM " + t.table + " WHERE " + t.key + " = ").param(key)
	var seen sql.NullInt64
	err := db.QueryRowContext(ctx, s.query.String(), s.args...).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w: %s = %v in %s", ErrNoRow, t.key, key, t.table)
	case err != nil:
		return 0, fmt.Errorf("fence: read %s: %w", t.table, err)
	}
	return seen.Int64, nil
}

// run executes a conditional write, and finds out why it changed nothing.
func (t *Table) run(ctx context.Context, db DB, what string, s statement, token int64, key any) error {
	for try := range tries {
		res, err := db.ExecContext(ctx, s.query.String(), s.args...)
		if err != nil {
			return fmt.Errorf("fence: %s %s: %w", what, t.table, err)
		}
		n, err := res.RowsAffected()
		switch {
		case err != nil:
			return fmt.Errorf("fence: %s %s: the driver doesn't say how many rows it changed: %w", what, t.table, err)
		case n > 1:
			return invalid("%s changed %d rows of %s: the key column %s doesn't tell them apart", what, n, t.table, t.key)
		case n == 1:
			return nil
		}
		seen, err := t.Seen(ctx, db, key)
		switch {
		case err != nil:
			return err
		case seen > token, t.holder != "" && seen == token && try == tries-1:
			return &StaleError{Token: token, Seen: seen}
		}
		// Between the two statements the row came, or its fence was lowered.
	}
	return fmt.Errorf("fence: %s %s: the row keeps changing: is its fence lowered?", what, t.table)
}

// tries is how often a write is tried whose refusal can't be explained.
const tries = 3

// check checks token and columns, and answers the columns quoted.
func (t *Table) check(token int64, set []Assignment) ([]string, error) {
	if err := checkToken(token); err != nil {
		return nil, err
	}
	if (t.holder == "") != (t.by == "") {
		return nil, invalid("By and Names.Holder go together: a table that remembers holders takes writes of named ones only, any other of none")
	}
	columns := make([]string, len(set))
	for i, a := range set {
		c, err := quote("column", a.column)
		if err != nil {
			return nil, err
		}
		if c == t.key || c == t.fence || c == t.holder {
			return nil, invalid("column %s is key, fence or holder: it is not set by hand", c)
		}
		columns[i] = c
	}
	return columns, nil
}

// statement is SQL with its parameters.
type statement struct {
	dialect Dialect
	query   strings.Builder
	args    []any
}

func (s *statement) text(sql string) *statement {
	s.query.WriteString(sql)
	return s
}

func (s *statement) param(v any) *statement {
	s.args = append(s.args, v)
	if s.dialect == Postgres {
		return s.text("$" + strconv.Itoa(len(s.args)))
	}
	return s.text("?")
}
