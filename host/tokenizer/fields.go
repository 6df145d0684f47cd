package tokenizer

import (
	"encoding/json"
	"fmt"
	"sort"
)

// maxNesting bounds Sequences inside Sequences.
const maxNesting = 16

func tooDeep(path string) error {
	return &pathError{path, fmt.Errorf("more than %d Sequences in one another", maxNesting)}
}

// fields reads one component of tokenizer.json: an object with a "type" and a few settings.
// The first error stays, so that a component reads all its settings and then asks once.
// Errors name the path; a setting that nobody asked for is refused, since it may change
// the result.
type fields struct {
	path  string
	kind  string
	raw   map[string]json.RawMessage
	asked map[string]bool
	err   error
}

// component opens the component at path; nil means that the file has null there.
func component(path string, raw json.RawMessage) (*fields, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	f := &fields{path: path, asked: map[string]bool{}}
	if err := json.Unmarshal(raw, &f.raw); err != nil {
		return nil, &pathError{path, fmt.Errorf("should be an object: %w", err)}
	}
	f.kind = f.text("type", "")
	if f.err == nil && f.kind == "" {
		return nil, &pathError{path + ".type", fmt.Errorf("is missing")}
	}
	return f, f.err
}

// unsupported is the error for a component of a kind that this package does not have.
func (f *fields) unsupported() error {
	return &pathError{f.path + ".type", fmt.Errorf("%q is %w", f.kind, ErrUnsupported)}
}

func (f *fields) read(key string, into any, what string) bool {
	f.asked[key] = true
	raw, ok := f.raw[key]
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		f.fail(key, fmt.Errorf("found %s where %s should be", clip(raw), what))
		return false
	}
	return true
}

func (f *fields) fail(key string, err error) {
	if f.err == nil {
		f.err = &pathError{f.path + "." + key, err}
	}
}

func (f *fields) text(key, otherwise string) string {
	f.read(key, &otherwise, "a string")
	return otherwise
}

func (f *fields) flag(key string, otherwise bool) bool {
	f.read(key, &otherwise, "true or false")
	return otherwise
}

// count reads a number that may not be negative.
func (f *fields) count(key string) int {
	n := 0
	if f.read(key, &n, "a number") && n < 0 {
		f.fail(key, fmt.Errorf("%d is negative", n))
	}
	return n
}

// char reads a string of exactly one character.
func (f *fields) char(key, otherwise string) rune {
	s := []rune(f.text(key, otherwise))
	if len(s) != 1 {
		f.fail(key, fmt.Errorf("%q should be one character", string(s)))
		return 0
	}
	return s[0]
}

// list reads the parts of a Sequence.
func (f *fields) list(key string) []json.RawMessage {
	var parts []json.RawMessage
	if !f.read(key, &parts, "an array") {
		f.fail(key, fmt.Errorf("is missing"))
	}
	return parts
}

// part is the path of the ith part of a Sequence.
func (f *fields) part(key string, i int) string { return f.path + "." + key + index(i) }

// pattern reads {"String": "…"} or {"Regex": "…"}.
func (f *fields) pattern(key string) (text string, isRegex bool) {
	var p struct{ String, Regex *string }
	if !f.read(key, &p, "a pattern") || (p.String == nil) == (p.Regex == nil) {
		f.fail(key, fmt.Errorf("should hold either String or Regex"))
		return "", false
	}
	if p.Regex != nil {
		return *p.Regex, true
	}
	return *p.String, false
}

// done returns the first error, and refuses settings that nobody asked for.
func (f *fields) done() error {
	if f.err != nil {
		return f.err
	}
	var unknown []string
	for key := range f.raw {
		if !f.asked[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	sort.Strings(unknown)
	return &pathError{f.path + "." + unknown[0], fmt.Errorf("this setting is %w", ErrUnsupported)}
}
