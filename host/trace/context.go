package trace

import (
	"crypto/rand"
	"encoding/hex"
)

// Context is a place in a trace, as the header traceparent of the W3C's Trace Context carries it.
type Context struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool
}

// Header names the header that carries a Context.
const Header = "Traceparent"

// Parse reads a traceparent: version 00, or a later one by its first four fields. It reports false
// for what is none.
func Parse(text string) (c Context, ok bool) {
	const size = 55
	switch {
	case len(text) < size, text[2] != '-', text[35] != '-', text[52] != '-':
		return c, false
	case text[:2] == "ff", text[:2] == "00" && len(text) != size,
		len(text) > size && text[size] != '-':
		return c, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], text[:2]}, {c.Trace[:], text[3:35]}, {c.Span[:], text[36:52]},
		{flags[:], text[53:55]}} {
		if !lowerHex(part.from) {
			return Context{}, false
		}
		if _, err := hex.Decode(part.to, []byte(part.from)); err != nil {
			return Context{}, false
		}
	}
	c.Sampled = flags[0]&1 == 1
	return c, c.Trace != [16]byte{} && c.Span != [8]byte{}
}

// lowerHex reports whether text has the only digits that a traceparent may have.
func lowerHex(text string) bool {
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// String writes the traceparent.
func (c Context) String() string {
	flags := "00"
	if c.Sampled {
		flags = "01"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + "-" +
		flags
}

// child is a new place below c, or the first one of a new trace when c is none.
func child(c Context, ok bool) Context {
	if !ok {
		c.Sampled = true
		rand.Read(c.Trace[:]) // It never fails.
	}
	rand.Read(c.Span[:])
	return c
}
