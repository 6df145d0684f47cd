package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// decode reads the text into plain maps and its places into f.root. The scan runs first because it
// bounds the nesting that the library's parser recurses into.
func (f *file) decode() (map[string]any, *Problem) {
	s := scan(f.text)
	f.root = s.root
	if s.deep != nil {
		p := f.at(*s.deep)
		p.Code, p.Label = "E003", "here"
		p.Message = fmt.Sprintf("nested more than %d levels deep", maxNesting)
		return nil, &p
	}
	var values map[string]any
	_, err := toml.Decode(f.text, &values)
	if err == nil {
		return values, nil
	}
	p := f.syntaxProblem(err, s.repeats)
	return nil, &p
}

// syntaxProblem explains the library's error. A key or table given twice is shown at the second
// place with a pointer to the first: the library's column for those is past the end of the line.
func (f *file) syntaxProblem(err error, repeats []repeat) Problem {
	var wrong toml.ParseError
	if !errors.As(err, &wrong) {
		return Problem{
			Code: "E001", File: f.name,
			Message: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: "),
		}
	}
	start := wrong.Position.Start
	p := f.at(place{start: start, end: start + wrong.Position.Len})
	for _, r := range repeats {
		if f.lineOf(r.second) == p.Line {
			return f.repeatProblem(r)
		}
	}
	p.Code, p.Label = "E001", "here"
	p.Message = "not valid TOML: " + printable(strings.ReplaceAll(wrong.Message, "\n", `\n`))
	if help := syntaxHelp(p.Source, wrong.Message); help != "" {
		p.Help = []string{help}
	}
	return p
}

// repeatProblem says where the other one is.
func (f *file) repeatProblem(r repeat) Problem {
	p := f.at(r.second)
	p.Code, p.Label = "E002", "second time"
	first := f.lineOf(r.first)
	if r.table {
		p.Message = fmt.Sprintf("table [%s] is defined twice", r.path)
		p.Help = []string{fmt.Sprintf("[%s] is opened first on line %d; move these keys there",
			r.path, first)}
		return p
	}
	p.Message = fmt.Sprintf("key %s is set twice", r.path)
	p.Help = []string{fmt.Sprintf("it is set first on line %d; remove one of the two", first)}
	return p
}

// What the line of a syntax error often looks like.
var (
	yamlLine     = regexp.MustCompile(`^\s*(?:- )?([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?$`)
	assignedWord = regexp.MustCompile(`=\s*([^\s,#"'\[\]{}]+)`)
	withUnit     = regexp.MustCompile(`=\s*(\d[\d._]*\s*[A-Za-zµ%/][A-Za-z/]*)`)
)

// syntaxHelp is one line on what to write instead, or "".
func syntaxHelp(line, message string) string {
	line = strings.TrimRight(line, " \t")
	if m := yamlLine.FindStringSubmatch(line); m != nil {
		value := strings.Trim(strings.TrimSpace(m[2]), `"'`)
		if value == "" {
			return fmt.Sprintf("this looks like YAML; TOML writes a table as [%s]", m[1])
		}
		if _, err := decodeValue(value); err != nil {
			value = quote(value)
		}
		return fmt.Sprintf("this looks like YAML; TOML writes %s = %s", m[1], value)
	}
	if m := withUnit.FindStringSubmatch(line); m != nil {
		return fmt.Sprintf("a value with a unit is a string: %s", quote(m[1]))
	}
	if strings.Contains(message, "escape") {
		return `a backslash starts an escape: write two, or put the text in single quotes`
	}
	if strings.Contains(message, "strings cannot contain newlines") {
		return "the closing quote is missing"
	}
	m := assignedWord.FindStringSubmatch(line)
	if m == nil || !strings.Contains(message, "expected value") {
		return ""
	}
	switch strings.ToLower(m[1]) {
	case "true", "false", "yes", "no", "on", "off":
		return "booleans in TOML are lower case: true, false"
	case "none", "null", "nil", "~":
		return "TOML has no null: leave the key out and it has its default"
	}
	return fmt.Sprintf("text needs quotes: %s", quote(m[1]))
}
