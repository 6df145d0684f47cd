// Package policyfile reads policy.toml: what a policy is called, how its module is built, and what
// an operator can set. It stands beside the policy's source.
package policyfile

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// File is a policy.toml.
type File struct {
	Name    string // The policy's name, as its descriptor gives it.
	Version string
	Lang    string // c, rust, go, zig, assemblyscript or wat.
	Summary string // One sentence.
	Source  string // The file to read first, in the same folder.
	Build   Build
	// Settings by name: the keys of the JSON object that pol_init reads.
	Settings map[string]Setting
	// Reasons are words for the reason numbers of the policy's decisions.
	Reasons map[string]string
}

// Build is how the module is made.
type Build struct {
	// Commands run one after the other in the policy's folder; each is a program and its
	// arguments. {sdk}, {out} and {tmp} in them stand for Dirs.
	Commands [][]string
	// Tools are what the commands need, in the versions the shipped module was built with.
	Tools []Tool `toml:"tool"`
}

// Tool is a program a build needs.
type Tool struct {
	Command []string // Prints its version.
	Version string   // Part of what it prints.
	Install string   // The one line that installs it on Debian.
}

// Setting is a key an operator can set.
type Setting struct {
	Type     string // int or bool.
	Default  any    // int64 or bool.
	Min, Max *int64 // Of an int; both are given.
	Doc      string
}

// langs are the languages a policy may be written in.
var langs = []string{"c", "rust", "go", "zig", "assemblyscript", "wat"}

// validName is what a policy may be called: it becomes part of file and metric names.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)

// Read reads and checks a policy.toml.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	f, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads and checks the text of a policy.toml. Unknown keys are errors.
func Parse(text string) (*File, error) {
	f := new(File)
	meta, err := toml.Decode(text, f)
	if err != nil {
		return nil, err
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("unknown key %s", extra[0])
	}
	return f, f.check()
}

func (f *File) check() error {
	switch {
	case !validName.MatchString(f.Name):
		return fmt.Errorf("name %q: want small letters, digits and -, a letter first", f.Name)
	case f.Version == "":
		return fmt.Errorf("version is missing")
	case !slices.Contains(langs, f.Lang):
		return fmt.Errorf("lang %q: want one of %s", f.Lang, strings.Join(langs, ", "))
	case f.Summary == "" || f.Source == "":
		return fmt.Errorf("summary and source are needed")
	case len(f.Build.Commands) == 0:
		return fmt.Errorf("build.commands is empty")
	}
	for i, command := range f.Build.Commands {
		if len(command) == 0 {
			return fmt.Errorf("build.commands: command %d is empty", i+1)
		}
	}
	for i, tool := range f.Build.Tools {
		if len(tool.Command) == 0 || tool.Version == "" || tool.Install == "" {
			return fmt.Errorf("build.tool %d: command, version and install are needed", i+1)
		}
	}
	for number := range f.Reasons {
		if _, err := strconv.ParseUint(number, 10, 16); err != nil {
			return fmt.Errorf("reasons.%s: want a number from 0 to 65535", number)
		}
	}
	for name, s := range f.Settings {
		if err := s.check(); err != nil {
			return fmt.Errorf("settings.%s: %w", name, err)
		}
	}
	return nil
}

func (s Setting) check() error {
	if s.Doc == "" {
		return fmt.Errorf("doc is missing")
	}
	switch s.Type {
	case "bool":
		if _, ok := s.Default.(bool); !ok || s.Min != nil || s.Max != nil {
			return fmt.Errorf("a bool has a default, true or false, and no range")
		}
	case "int":
		n, ok := s.Default.(int64)
		if !ok || s.Min == nil || s.Max == nil || n < *s.Min || n > *s.Max {
			return fmt.Errorf("an int has min, max, and a default between them")
		}
	default:
		return fmt.Errorf("type %q: want int or bool", s.Type)
	}
	return nil
}
