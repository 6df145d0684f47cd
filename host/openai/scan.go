package openai

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is one JSON value inside a body whose syntax has been checked.
type value struct {
	raw  string // without white space around it
	at   int    // offset in the body
	path string // such as messages[0].content
}

// member is one field of an object.
type member struct {
	name string
	value
}

// parse checks that the body is one JSON object in UTF-8 and returns its fields in their order.
func parse(body []byte) ([]member, *Error) {
	if !utf8.Valid(body) {
		at := 0
		for at < len(body) {
			r, n := utf8.DecodeRune(body[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return nil, Errorf(CodeInvalidJSON, "", "the body is not UTF-8 at byte %d", at)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		at := len(body)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = int(syntax.Offset)
		}
		return nil, Errorf(CodeInvalidJSON, "", "the body is not JSON at byte %d: %v", at, err)
	}
	text := string(body)
	start := space(text, 0)
	v := value{raw: text[start:end(text, start)], at: start}
	return v.members()
}

// space returns the first index from i on that is no white space.
func space(s string, i int) int {
	for i < len(s) && strings.IndexByte(" \t\r\n", s[i]) >= 0 {
		i++
	}
	return i
}

// end returns the index behind the value that begins at i.
func end(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch s[i] {
		case '"':
			i = quote(s, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i // The end of the array or object around a bare word.
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// quote returns the index behind the string that begins at i.
func quote(s string, i int) int {
	for i++; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

// kind names what the value is, with its article.
func (v value) kind() string {
	switch v.raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (v value) null() bool { return v.raw == "null" }

// wrong says that the value is not what was wanted.
func (v value) wrong(want string) *Error {
	return Errorf(CodeInvalidType, v.path, "%s must be %s, not %s (byte %d)",
		v.title(), want, v.kind(), v.at)
}

// invalid says what is wrong with a value of the right type.
func (v value) invalid(format string, args ...any) *Error {
	e := Errorf(CodeInvalidValue, v.path, format, args...)
	e.Message = v.title() + " " + e.Message + " (byte " + strconv.Itoa(v.at) + ")"
	return e
}

func (v value) title() string {
	if v.path == "" {
		return "the body"
	}
	return v.path
}

// members returns an object's fields in their order.
func (v value) members() ([]member, *Error) {
	if v.raw[0] != '{' {
		return nil, v.wrong("an object")
	}
	var all []member
	for i := space(v.raw, 1); v.raw[i] != '}'; {
		name := value{raw: v.raw[i:quote(v.raw, i)], at: v.at + i}.unquote()
		i = space(v.raw, space(v.raw, quote(v.raw, i))+1) // The colon.
		path := name
		if v.path != "" {
			path = v.path + "." + name
		}
		stop := end(v.raw, i)
		all = append(all, member{name, value{raw: v.raw[i:stop], at: v.at + i, path: path}})
		if len(all) > MaxFields {
			return nil, v.invalid("has more than %d fields", MaxFields)
		}
		i = comma(v.raw, stop)
	}
	return all, nil
}

// each calls f with every element of an array until one returns an error. More than most elements
// are an error.
func (v value) each(most int, f func(element value) *Error) *Error {
	if v.raw[0] != '[' {
		return v.wrong("an array")
	}
	n := 0
	for i := space(v.raw, 1); v.raw[i] != ']'; n++ {
		if n == most {
			return v.invalid("has more than %d elements", most)
		}
		stop := end(v.raw, i)
		path := v.path + "[" + strconv.Itoa(n) + "]"
		if err := f(value{raw: v.raw[i:stop], at: v.at + i, path: path}); err != nil {
			return err
		}
		i = comma(v.raw, stop)
	}
	return nil
}

// tokens reads an array of token ids. It makes no paths but for the error: prompts are long.
func (v value) tokens() ([]int32, *Error) {
	ids := make([]int32, 0, strings.Count(v.raw, ",")+1)
	for i := space(v.raw, 1); v.raw[i] != ']'; {
		stop := end(v.raw, i)
		id, err := strconv.ParseUint(v.raw[i:stop], 10, 31)
		if err != nil {
			path := v.path + "[" + strconv.Itoa(len(ids)) + "]"
			return nil, value{raw: v.raw[i:stop], at: v.at + i, path: path}.notToken()
		}
		ids = append(ids, int32(id))
		i = comma(v.raw, stop)
	}
	return ids, nil
}

// notToken says why a value is no token id.
func (v value) notToken() *Error {
	if _, err := v.integer(0, math.MaxInt32); err != nil {
		return err
	}
	return v.invalid("is %.40s; it must be a token id", v.raw) // Such as -0.
}

// comma returns the index of the next element or of the closing bracket.
func comma(s string, i int) int {
	if i = space(s, i); s[i] == ',' {
		i = space(s, i+1)
	}
	return i
}

// unquote returns the text of a string.
func (v value) unquote() string {
	inner := v.raw[1 : len(v.raw)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if err := json.Unmarshal([]byte(v.raw), &s); err != nil {
		panic("openai: a string that was checked does not decode: " + err.Error())
	}
	return s
}
