package authortools

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/policyfile"
)

//go:embed templates
var templates embed.FS

// validName is what policy.toml allows, short enough for every template.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Create makes a folder with a policy that builds and passes its tests, and the SDK beside it. It
// needs no network. The folder must not exist, or be empty.
func Create(dir, name string, l Language) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("name %q: want small letters, digits and -, a letter first, at most 32",
			name)
	}
	if have, err := os.ReadDir(dir); err == nil && len(have) > 0 {
		return fmt.Errorf("%s exists and is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("new policy: %w", err)
	}
	files, err := newFiles(name, l)
	if err != nil {
		return err
	}
	sdk, err := sdkFiles(l.sdk)
	if err != nil {
		return err
	}
	for at, text := range sdk {
		files["sdk/"+at] = text
	}
	return writeFiles(dir, files)
}

// writeFiles writes files by their paths below a folder.
func writeFiles(dir string, files map[string][]byte) error {
	for at, text := range files {
		to := filepath.Join(dir, filepath.FromSlash(at))
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// newFiles are the policy's own files.
func newFiles(name string, l Language) (map[string][]byte, error) {
	fill := strings.NewReplacer("{{name}}", name, "{{summary}}", l.summary,
		"{{source}}", l.Source, "{{out}}", name+".wasm")
	files := map[string][]byte{
		"policy.toml": []byte(policyTOML(name, l)),
		".gitignore":  []byte("node_modules/\n*.wasm\n*.build.json\n"),
	}
	add := func(from, to string) error {
		text, err := templates.ReadFile("templates/" + from)
		files[to] = []byte(fill.Replace(string(text)))
		return err
	}
	err := errors.Join(add("all/README.md.tmpl", "README.md"),
		add("all/budget.toml.tmpl", "tests/budget.toml"),
		add("all/order.toml.tmpl", "tests/order.toml"))
	root := "templates/" + l.dir
	err = errors.Join(err, fs.WalkDir(templates, root, func(at string, d fs.DirEntry,
		err error,
	) error {
		if err != nil || d.IsDir() {
			return err
		}
		short := strings.TrimPrefix(at, "templates/")
		to := strings.TrimSuffix(strings.TrimPrefix(short, l.dir+"/"), ".tmpl")
		if to == "order.toml" {
			to = "tests/order.toml"
		}
		return add(short, to)
	}))
	if err != nil {
		return nil, err
	}
	if l.Name == "wat" {
		files["policy.wat"], err = watTemplate(name)
	}
	parsed, parseErr := policyfile.Parse(string(files["policy.toml"]))
	if err := errors.Join(err, parseErr); err != nil {
		return nil, err
	}
	files["policy.schema.json"] = Schema(parsed)
	return files, nil
}

// watTemplate is the SDK's policy in text under another name. The name lies behind the version,
// with
// as much room as a name may take, and the regions begin behind it.
func watTemplate(name string) ([]byte, error) {
	raw, err := abi.Sources.ReadFile("guest/wat/fcfs.wat")
	if err != nil {
		return nil, err
	}
	text := string(raw)
	for _, change := range [][2]string{
		{`(i32.const 96) "fcfs-wat" "1.0.0"`,
			fmt.Sprintf(`(i32.const 96) "1.0.0" "\00\00\00" "%s"`, name)},
		{`"\60\00\00\00" "\08\00\00\00" ;; 32 name, at 96, 8 bytes`, fmt.Sprintf(
			`"\68\00\00\00" "\%02x\00\00\00" ;; 32 name, at 104, %d bytes`, len(name), len(name))},
		{`"\68\00\00\00" "\05\00\00\00" ;; 40 version, at 104, 5 bytes`,
			`"\60\00\00\00" "\05\00\00\00" ;; 40 version, at 96, 5 bytes`},
		{"(global $next (mut i32) (i32.const 128))", "(global $next (mut i32) (i32.const 256))"},
		{"wat2wasm fcfs.wat -o fcfs.wasm", "engine policy build"},
	} {
		if !strings.Contains(text, change[0]) {
			return nil, fmt.Errorf("the template in text has no %q", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return []byte(text), nil
}

// policyTOML is the new policy's policy.toml.
func policyTOML(name string, l Language) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name = %q\nversion = \"1.0.0\"\nlang = %q\nsummary = %q\nsource = %q\n", name,
		l.Name, l.summary, l.Source)
	fmt.Fprintf(&b, `
# What engine policy build runs in this folder. %s is the compiler as it was found; {sdk} the
# folder of the SDK, {out} the module, {tmp} a folder for what is in between, {flags} what follows
# -- on the line.
[build]
commands = [
`, l.Tool)
	for _, command := range l.Commands {
		line := "  ["
		for i, word := range command {
			quoted := fmt.Sprintf("%q", word)
			if i > 0 && len(line)+2+len(quoted) > 98 {
				b.WriteString(line + ",\n")
				line = "   " + quoted
				continue
			}
			if i > 0 {
				line += ", "
			}
			line += quoted
		}
		b.WriteString(line + "],\n")
	}
	b.WriteString("]\n")
	if l.settings {
		b.WriteString(`
# What an operator can set: [policies.NAME] config = { aging_tokens_per_s = 50 }
[settings.aging_tokens_per_s]
type = "int"
default = 200
min = 0
max = 1_000_000
doc = "Tokens of prompt that a second of waiting is worth. 0 is shortest first without mercy."
`)
	}
	b.WriteString(`
# Words for the reason numbers of decisions, shown by engine explain.
[reasons]
# 1 = "longer than others"
`)
	return b.String()
}

// sdkFiles are the SDK's files by their path in the new folder's sdk folder, and the contract.
func sdkFiles(trees []tree) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, t := range append(slices.Clone(trees), tree{"SPEC.md", "SPEC.md"}) {
		err := fs.WalkDir(abi.Sources, t.from, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(at, "_test.go") {
				return err
			}
			text, err := abi.Sources.ReadFile(at)
			files[path.Join(t.to, strings.TrimPrefix(at, t.from))] = text
			return err
		})
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(t.to, "go/") {
			files["go/go.mod"] = []byte("module github.com/kvrelay/engine\n\ngo 1.24\n")
		}
	}
	return files, nil
}

// Schema is the JSON schema of a policy's settings.
func Schema(f *policyfile.File) []byte {
	properties := map[string]any{}
	for name, s := range f.Settings {
		p := map[string]any{"type": "integer", "default": s.Default, "description": s.Doc}
		if s.Type == "bool" {
			p["type"] = "boolean"
		}
		if s.Min != nil {
			p["minimum"], p["maximum"] = *s.Min, *s.Max
		}
		properties[name] = p
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f.Name,
		"type": "object", "properties": properties, "additionalProperties": false,
	}, "", "  ")
	if err != nil {
		panic(err) // Only maps, texts and numbers.
	}
	return append(text, '\n')
}
