package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// maxFile bounds the file. The full example has under 16 KiB.
const maxFile = 1 << 20

// file is the text a Config came from, with the place of everything in it.
type file struct {
	name   string // as the user named it
	folder string // what relative paths start at
	text   string
	starts []int // byte offset of each line
	root   *node
	set    int // keys given
	// env are the environment variables that override keys of the file, by key.
	env map[string]string
}

// Load reads and checks the file, under what the environment overrides. The Config is nil when a
// problem is an error; notes may come with either. With path "" it starts from Default().
func Load(path string) (*Config, []Problem) { return LoadUnder(path, os.Environ()) }

// Inspect is Load for those who look further: the Config is there in spite of errors, with the
// default in the place of each value that is wrong, as soon as the file can be read at all.
func Inspect(path string) (*Config, []Problem) { return inspectUnder(path, os.Environ()) }

// LoadUnder is Load with the environment given as NAME=VALUE.
func LoadUnder(path string, environ []string) (*Config, []Problem) {
	c, problems := inspectUnder(path, environ)
	if Failed(problems) {
		return nil, problems
	}
	return c, problems
}

func inspectUnder(path string, environ []string) (*Config, []Problem) {
	if path == "" {
		return parseUnder("", "", environ)
	}
	text, err := read(path)
	if err != nil {
		p := Problem{Code: "E000", File: path}
		p.Message = fmt.Sprintf("cannot read %s: %v", path, err)
		if errors.Is(err, fs.ErrNotExist) {
			p.Help = []string{fmt.Sprintf("`engine config init %s` writes one", path)}
		}
		return nil, []Problem{p}
	}
	return parseUnder(path, text, environ)
}

// read returns the text of a file of a bounded size.
func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", errors.Unwrap(err) // The caller names the path.
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return "", errors.New("it is a folder")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("it is larger than %s", formatSize(maxFile))
	}
	return string(text), nil
}

// parse checks the text of the file called name.
func parse(name, text string) (*Config, []Problem) {
	c, problems := parseUnder(name, text, nil)
	if Failed(problems) {
		return nil, problems
	}
	return c, problems
}

// parseUnder checks the text of a file and what overrides it. The Config is nil only where the text
// cannot be read as TOML.
func parseUnder(name, text string, environ []string) (*Config, []Problem) {
	f := newFile(name, text)
	values, problem := f.decode()
	if problem != nil {
		return nil, []Problem{*problem}
	}
	c := &checker{file: f, config: Default(), bad: map[string]bool{}}
	c.config.file = f
	c.root(values)
	c.policies(values["policies"], f.root.child("policies"))
	c.tenants(values["tenants"], f.root.child("tenants"))
	c.environment(environ)
	c.together()
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	c.loadKeys()
	return c.config, c.problems
}

// newFile finds the lines. A byte order mark is dropped; CRLF and tabs stay as they are.
func newFile(name, text string) *file {
	f := &file{name: name, text: strings.TrimPrefix(text, "\ufeff")}
	f.folder = filepath.Dir(name)
	f.starts = []int{0}
	for i := range len(f.text) {
		if f.text[i] == '\n' && i+1 < len(f.text) {
			f.starts = append(f.starts, i+1)
		}
	}
	return f
}

// Lines is the number of lines of the file, 0 without one.
func (c *Config) Lines() int {
	if c.File() == "" {
		return 0
	}
	return len(c.file.starts)
}

// KeysSet is how many keys the file gives.
func (c *Config) KeysSet() int {
	if c.file == nil {
		return 0
	}
	return c.file.set
}

// File is the file as the user named it, "" for the defaults.
func (c *Config) File() string {
	if c.file == nil {
		return ""
	}
	return c.file.name
}

// At is an empty problem at the value of a key ("model.path", "policies.mine.path",
// "router.prefill.0.url"): what is found wrong with a value after loading is shown at its place
// too. A key that the file does not give has no line.
func (c *Config) At(key string) Problem {
	if c.file == nil {
		return Problem{File: "the defaults"}
	}
	if env := c.file.env[key]; env != "" {
		return c.file.at(place{env: env})
	}
	n := c.file.find(key)
	if n == nil {
		return Problem{File: c.file.name}
	}
	return c.file.at(n.value)
}

// find returns the node of a dotted name, or nil.
func (f *file) find(key string) *node {
	n := f.root
	for part := range strings.SplitSeq(key, ".") {
		if n == nil {
			return nil
		}
		if next := n.kids[part]; next != nil {
			n = next
			continue
		}
		var i int
		if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(n.items) {
			return nil
		}
		n = n.items[i]
	}
	return n
}

// at is an empty problem at p.
func (f *file) at(p place) Problem {
	if p.env != "" {
		return Problem{File: "the environment", Variable: p.env}
	}
	if f.name == "" {
		return Problem{File: "the defaults"}
	}
	start := min(max(p.start, 0), len(f.text))
	line := sort.SearchInts(f.starts, start+1) - 1
	source := f.line(line)
	first := f.starts[line]
	before := f.text[first:start]
	end := min(max(p.end, start), first+len(source))
	span := 1
	if end > start {
		span = utf8.RuneCountInString(f.text[start:end])
	}
	return Problem{
		File: f.name, Line: line + 1, Column: utf8.RuneCountInString(before) + 1,
		Span: span, Source: source,
	}
}

// line is the text of line i, counted from 0, without its end.
func (f *file) line(i int) string {
	end := len(f.text)
	if i+1 < len(f.starts) {
		end = f.starts[i+1]
	}
	return strings.TrimRight(f.text[f.starts[i]:end], "\r\n")
}

// lineOf is the number of the line that holds p, counted from 1.
func (f *file) lineOf(p place) int { return f.at(p).Line }
