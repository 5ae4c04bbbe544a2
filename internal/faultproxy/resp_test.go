package faultproxy

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// samples are values of every type, with ~ for CRLF.
var samples = []string{
	"+OK~", "+~", "-ERR no~", ":-7~", "_~", "#t~", ",1.5e3~", ",inf~", "(3492890328409238509324850943850943825024385~",
	"$0~~", "$5~a~bc~", "$-1~", "=15~txt:Some string~", "!21~SYNTAX invalid syntax~",
	"*0~", "*-1~", "*2~$1~a~:1~", "*2~*1~*1~:1~_~", "~2~:1~#f~", "%2~+a~:1~$1~b~*1~_~",
	">3~$7~message~$1~c~$2~hi~", ">2~+invalidate~*1~$1~k~",
	"|1~+ttl~:3600~+OK~", "|1~+ttl~:3600~*1~:2~", "*2~|1~+x~+y~:1~:2~", "%1~|1~+x~+y~+k~|1~+x~+y~+v~",
}

// wire turns a sample into bytes; a set begins with the tilde that stands for CRLF.
func wire(sample string) string {
	if strings.HasPrefix(sample, "~") {
		return "~" + wire(sample[1:])
	}
	return strings.ReplaceAll(sample, "~", "\r\n")
}

func TestValuesOfAllTypesAreFramed(t *testing.T) {
	var all strings.Builder
	for _, s := range samples {
		all.WriteString(wire(s))
	}
	// One byte at a time, with the smallest buffer there is.
	r := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(all.String())), 16)
	for _, s := range samples {
		v, err := readValue(r)
		require.NoError(t, err, s)
		require.Equal(t, wire(s), string(v.raw))
	}
	_, err := readValue(r)
	require.Equal(t, io.EOF, err)
}

func TestAttributesComeBeforeTheKind(t *testing.T) {
	v, err := readValue(bufio.NewReader(strings.NewReader(wire("|1~+a~*1~+b~>2~+message~+c~"))))
	require.NoError(t, err)
	require.Equal(t, byte('>'), v.kind())
	require.Equal(t, []string{"message", "c"}, v.words(2))
}

func TestLargeValues(t *testing.T) {
	big := "$300000\r\n" + strings.Repeat("x", 300_000) + "\r\n"
	long := "+" + strings.Repeat("y", 100_000) + "\r\n"
	r := bufio.NewReader(strings.NewReader(big + long))
	for _, want := range []string{big, long} {
		v, err := readValue(r)
		require.NoError(t, err)
		require.True(t, want == string(v.raw))
	}
}

func TestEveryCutIsAnUnexpectedEnd(t *testing.T) {
	for _, s := range samples {
		full := wire(s)
		for i := 1; i < len(full); i++ {
			_, err := readValue(bufio.NewReader(strings.NewReader(full[:i])))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", full[:i])
		}
	}
	full := encode("SET k v")
	for i := 1; i < len(full); i++ {
		_, _, err := readRequest(bufio.NewReader(strings.NewReader(full[:i])))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", full[:i])
	}
}

func TestMalformedInputIsAProtocolError(t *testing.T) {
	for _, s := range []string{
		"OK~", "+OK\n", "\n", "$x~", "$-2~", "$?~", "*?~", "*99999999999~", "$999999999999~", "$1~abc~", "*1~?~",
		strings.Repeat("*1~", 200) + ":1~",
	} {
		_, err := readValue(bufio.NewReader(strings.NewReader(wire(s))))
		require.ErrorIs(t, err, errProtocol, "%q", s)
	}
	for _, s := range []string{"PING~", "+PING~", "*1~:1~", "*1~$-1~", "*x~", "*1~$4~PINGxx"} {
		_, _, err := readRequest(bufio.NewReader(strings.NewReader(wire(s))))
		require.ErrorIs(t, err, errProtocol, "%q", s)
	}
}

func TestRequestsAreSplitIntoWords(t *testing.T) {
	in := "*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n*0\r\n" + encode("PING")
	r := bufio.NewReader(strings.NewReader(in))
	for _, want := range [][]string{{"SET", "a\r\nb", ""}, nil, {"PING"}} {
		_, cmd, err := readRequest(r)
		require.NoError(t, err)
		require.Equal(t, want, cmd)
	}
	_, _, err := readRequest(r)
	require.Equal(t, io.EOF, err)
}

func FuzzReadValue(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(wire(s)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := readValue(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(in, v.raw) {
			t.Fatalf("read %q from %q", v.raw, in)
		}
		v.words(3)
		again, err := readValue(bufio.NewReader(bytes.NewReader(v.raw)))
		if err != nil || !bytes.Equal(again.raw, v.raw) {
			t.Fatalf("%q is not a value of its own: %v", v.raw, err)
		}
	})
}
