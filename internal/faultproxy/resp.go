package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

const (
	maxBulk  = 512 << 20 // the server's own limit
	maxDepth = 64
	growStep = 64 << 10
)

// errProtocol marks bytes that are not the RESP this package reads.
var errProtocol = errors.New("faultproxy: protocol error")

// value is one complete RESP value as it came over the wire.
type value struct {
	raw  []byte
	body int // where the value begins in raw, behind its attributes
}

// kind is the value's type byte.
func (v value) kind() byte { return v.raw[v.body] }

// readValue reads one value. The error is io.EOF only between two values.
func readValue(r *bufio.Reader) (value, error) {
	var v value
	for {
		first, err := r.Peek(1)
		if err != nil {
			return v, midway(err, len(v.raw) > 0)
		}
		v.body = len(v.raw)
		isAttribute := first[0] == '|'
		if v.raw, err = appendValue(v.raw, r, 0); err != nil {
			return v, midway(err, true)
		}
		if !isAttribute {
			return v, nil
		}
	}
}

// midway turns the end of input inside a value into an unexpected one.
func midway(err error, inside bool) error {
	if inside && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendValue appends the bytes of the next value, with all that is nested in it,
// to dst. Attributes count as a value of their own here.
func appendValue(dst []byte, r *bufio.Reader, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, fmt.Errorf("%w: nested deeper than %d", errProtocol, maxDepth)
	}
	start := len(dst)
	dst, err := appendLine(dst, r)
	if err != nil {
		return dst, err
	}
	line := dst[start : len(dst)-2]

	var elements int
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return dst, nil
	case '$', '=', '!':
		n, err := length(line)
		if err != nil || n < 0 {
			return dst, err
		}
		return appendBulk(dst, r, n)
	case '*', '~', '>':
		elements, err = length(line)
	case '%', '|':
		elements, err = length(line)
		elements *= 2
	default:
		err = fmt.Errorf("%w: a value begins with %.40q", errProtocol, line)
	}
	if err != nil {
		return dst, err
	}
	for i := 0; i < elements; {
		attribute, err := r.Peek(1)
		if err != nil {
			return dst, err
		}
		if attribute[0] != '|' { // those are in addition to the elements
			i++
		}
		if dst, err = appendValue(dst, r, depth+1); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// readRequest reads one request and returns it raw and as words. No words means
// an empty array, which the server doesn't answer.
func readRequest(r *bufio.Reader) (raw []byte, cmd []string, err error) {
	if raw, err = appendLine(nil, r); err != nil {
		return nil, nil, err
	}
	if raw[0] != '*' {
		return nil, nil, fmt.Errorf("%w: a request begins with %.40q", errProtocol, raw)
	}
	n, err := length(raw[:len(raw)-2])
	if err != nil {
		return nil, nil, err
	}
	var ends []int // of the words in raw; the lengths follow from the lines between
	var starts []int
	for range n {
		at := len(raw)
		if raw, err = appendLine(raw, r); err != nil {
			return nil, nil, midway(err, true)
		}
		if raw[at] != '$' {
			return nil, nil, fmt.Errorf("%w: an argument begins with %.40q", errProtocol, raw[at:])
		}
		size, err := length(raw[at : len(raw)-2])
		if err != nil {
			return nil, nil, err
		}
		if size < 0 {
			return nil, nil, fmt.Errorf("%w: an argument is null", errProtocol)
		}
		starts, ends = append(starts, len(raw)), append(ends, len(raw)+size)
		if raw, err = appendBulk(raw, r, size); err != nil {
			return nil, nil, midway(err, true)
		}
	}
	all := string(raw) // one copy that all words share
	for i := range starts {
		cmd = append(cmd, all[starts[i]:ends[i]])
	}
	return raw, cmd, nil
}

// appendLine appends the next line with its CRLF; a line has at least its type byte.
func appendLine(dst []byte, r *bufio.Reader) ([]byte, error) {
	start := len(dst)
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return dst, midway(err, len(dst) > start)
		}
		break
	}
	if line := dst[start:]; len(line) < 3 || line[len(line)-2] != '\r' {
		return dst, fmt.Errorf("%w: bad line %.40q", errProtocol, line)
	}
	return dst, nil
}

// appendBulk appends n bytes and their CRLF. It grows dst with what arrives: a
// length is only a claim.
func appendBulk(dst []byte, r *bufio.Reader, n int) ([]byte, error) {
	for left := n + 2; left > 0; {
		step := min(left, growStep)
		at := len(dst)
		dst = slices.Grow(dst, step)[:at+step]
		if _, err := io.ReadFull(r, dst[at:]); err != nil {
			return dst, err
		}
		left -= step
	}
	if !bytes.HasSuffix(dst, []byte("\r\n")) {
		return dst, fmt.Errorf("%w: no CRLF after %d bytes", errProtocol, n)
	}
	return dst, nil
}

// length reads the number behind a type byte; -1 is a null.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > maxBulk {
		return 0, fmt.Errorf("%w: bad length %.40q", errProtocol, line)
	}
	return n, nil
}

// words returns the first limit elements of an aggregate as text: what bulk,
// simple and number values say. Anything else ends the list; a null is "".
func (v value) words(limit int) []string {
	r := bufio.NewReaderSize(bytes.NewReader(v.raw[v.body:]), 128)
	head, err := appendLine(nil, r)
	if err != nil {
		return nil
	}
	n, err := length(head[:len(head)-2])
	if err != nil {
		return nil
	}
	var out []string
	for range min(n, limit) {
		raw, err := appendValue(nil, r, 0)
		if err != nil {
			return out
		}
		switch raw[0] {
		case '$':
			_, text, _ := bytes.Cut(raw, []byte("\r\n"))
			out = append(out, string(bytes.TrimSuffix(text, []byte("\r\n"))))
		case '+', ':':
			out = append(out, string(raw[1:len(raw)-2]))
		case '_':
			out = append(out, "")
		default:
			return out
		}
	}
	return out
}
