package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// jsonReader walks a JSON document that is held in memory, in one pass and without building
// a tree: a vocabulary of 260,000 tokens and its 500,000 merges go straight into tables.
// Every error names the byte, and on its way out the JSON path.
type jsonReader struct {
	data []byte
	pos  int
}

// pathError is an error at a JSON path; the path grows at its front while the error returns.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return e.path + ": " + e.err.Error() }
func (e *pathError) Unwrap() error { return e.err }

// at puts a step of the JSON path ("vocab", "[3]") in front of err's path.
func at(step string, err error) error {
	var inner *pathError
	if !errors.As(err, &inner) {
		return &pathError{step, err}
	}
	if strings.HasPrefix(inner.path, "[") {
		return &pathError{step + inner.path, inner.err}
	}
	return &pathError{step + "." + inner.path, inner.err}
}

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func (r *jsonReader) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", r.pos, fmt.Sprintf(format, args...))
}

// peek returns the first byte of the next value or punctuation, 0 at the end of the data.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) take(want byte, what string) error {
	switch c := r.peek(); c {
	case want:
		r.pos++
		return nil
	case 0:
		return r.fail("the file ends where %s should be", what)
	default:
		return r.fail("found %q where %s should be", c, what)
	}
}

// object calls each for every key; each must read the value.
func (r *jsonReader) object(each func(key string) error) error {
	if err := r.take('{', "an object"); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.pos++
		return nil
	}
	for {
		key, err := r.text()
		if err != nil {
			return err
		}
		name := string(key)
		if err := r.take(':', "':'"); err != nil {
			return at(clip(key), err)
		}
		if err := each(name); err != nil {
			return at(clip(key), err)
		}
		if r.peek() != ',' {
			return r.take('}', "',' or '}'")
		}
		r.pos++
	}
}

// array calls each for every element; each must read it.
func (r *jsonReader) array(each func(i int) error) error {
	if err := r.take('[', "an array"); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := each(i); err != nil {
			return at(index(i), err)
		}
		if r.peek() != ',' {
			return r.take(']', "',' or ']'")
		}
		r.pos++
	}
}

// text reads a string. The result is valid until the document is changed; it points into it
// where nothing had to be unescaped.
func (r *jsonReader) text() ([]byte, error) {
	if err := r.take('"', "a string"); err != nil {
		return nil, err
	}
	start := r.pos
	for i := start; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.pos = i + 1
			return r.data[start:i], nil
		case c == '\\':
			return r.unescape(start)
		case c < ' ':
			r.pos = i
			return nil, r.fail("control character in a string")
		}
	}
	r.pos = len(r.data)
	return nil, r.fail("the file ends inside a string")
}

// unescape reads the string whose content begins at start. Strings with escapes are few, so
// the standard library does the work; half a surrogate pair is refused, as it has no UTF-8.
func (r *jsonReader) unescape(start int) ([]byte, error) {
	end := start
	for ; end < len(r.data) && r.data[end] != '"'; end++ {
		if r.data[end] == '\\' {
			end++
		}
	}
	if end >= len(r.data) {
		r.pos = len(r.data)
		return nil, r.fail("the file ends inside a string")
	}
	r.pos = end + 1
	quoted := r.data[start-1 : r.pos]
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, r.fail("bad string: %v", err)
	}
	if loneSurrogate(quoted) {
		return nil, r.fail("half a surrogate pair in a string")
	}
	return []byte(s), nil
}

// loneSurrogate reports a \uD800 to \uDFFF escape without its other half. The escapes are
// known to be well formed.
func loneSurrogate(s []byte) bool {
	high := false
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++
		if s[i] != 'u' {
			if high {
				return true
			}
			continue
		}
		unit, _ := strconv.ParseUint(string(s[i+1:i+5]), 16, 32)
		i += 4
		low := unit >= 0xDC00 && unit < 0xE000
		if low != high {
			return true
		}
		high = unit >= 0xD800 && unit < 0xDC00
	}
	return high
}

func (r *jsonReader) boolean() (bool, error) {
	raw, err := r.skip()
	if err == nil && string(raw) != "true" && string(raw) != "false" {
		err = r.fail("found %s where true or false should be", clip(raw))
	}
	return string(raw) == "true", err
}

// tokenID reads a number from 0 to 2^31-1.
func (r *jsonReader) tokenID() (int32, error) {
	raw, err := r.skip()
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(string(raw), 10, 31)
	if err != nil {
		return 0, r.fail("found %s where a token ID should be", clip(raw))
	}
	return int32(id), nil
}

// skip passes over one value and returns its bytes. Only brackets and strings are looked
// at: whoever uses the value parses it.
func (r *jsonReader) skip() ([]byte, error) {
	c := r.peek()
	start, depth := r.pos, 0
	if c == 0 {
		return nil, r.fail("the file ends where a value should be")
	}
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case '"':
			if err := r.skipText(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return r.data[start:r.pos], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				r.pos++
			}
			if depth <= 0 {
				return r.data[start:r.pos], nil
			}
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return r.data[start:r.pos], nil
			}
		}
		r.pos++
	}
	if depth > 0 {
		return nil, r.fail("the file ends inside a value that began at byte %d", start)
	}
	return r.data[start:], nil
}

func (r *jsonReader) skipText() error {
	for i := r.pos + 1; i < len(r.data); i++ {
		switch r.data[i] {
		case '\\':
			i++
		case '"':
			r.pos = i + 1
			return nil
		}
	}
	r.pos = len(r.data)
	return r.fail("the file ends inside a string")
}

// clip shortens a value for an error message.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
