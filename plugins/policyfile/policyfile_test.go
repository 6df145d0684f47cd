package policyfile

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the modules of plugins/builtin anew")

const good = `
name = "a"
version = "1"
lang = "c"
summary = "S."
source = "a.c"
[build]
commands = [["cc"]]
[settings.x]
type = "int"
default = 1
min = 0
max = 2
doc = "D."
`

func TestParse(t *testing.T) {
	if _, err := Parse(good); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ old, new, want string }{
		{`name = "a"`, `name = "../a"`, "name"},
		{`name = "a"`, `nome = "a"`, "unknown key nome"},
		{`version = "1"`, ``, "version"},
		{`lang = "c"`, `lang = "cobol"`, "cobol"},
		{`source = "a.c"`, ``, "source"},
		{`[["cc"]]`, `[]`, "build.commands"},
		{`[["cc"]]`, `[[]]`, "command 1"},
		{`default = 1`, `default = 3`, "settings.x"},
		{`default = 1`, `default = 1.5`, "settings.x"},
		{`type = "int"`, `type = "float"`, "float"},
		{`type = "int"`, `type = "bool"`, "bool"},
		{`min = 0`, ``, "min"},
		{`doc = "D."`, ``, "doc"},
		{`name = "a"`, `name = `, "line"},
	}
	for _, c := range cases {
		_, err := Parse(strings.Replace(good, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v, want %q", c.old, c.new, err, c.want)
		}
	}
}

// TestShippedModules builds each policy of examples/plugins and compares the module with the one in
// plugins/builtin, byte by byte.
func TestShippedModules(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "examples/plugins/*/policy.toml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no policies found", err)
	}
	for _, path := range files {
		source := filepath.Dir(path)
		t.Run(filepath.Base(source), func(t *testing.T) {
			file, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			if file.Name != filepath.Base(source) {
				t.Errorf("policy %s stands in folder %s", file.Name, filepath.Base(source))
			}
			if _, err := os.Stat(filepath.Join(source, file.Source)); err != nil {
				t.Error(err)
			}
			shipped := filepath.Join(root, "plugins/builtin", file.Name+".wasm")
			dirs := Dirs{Source: source, SDK: filepath.Join(root, "abi/guest")}
			about := filepath.Join(root, "plugins/builtin", file.Name+".toml")
			compareFile(t, path, about)
			compareBuild(t, file, dirs, shipped)
		})
	}
}

// needTools skips a test whose tools are missing. With ENGINE_REQUIRE_TOOLCHAINS=1 it fails; with a
// list of languages, c,rust, it fails for those.
func needTools(t *testing.T, b Build, lang string) {
	missing := b.Missing(t.Context())
	required := strings.Split(os.Getenv("ENGINE_REQUIRE_TOOLCHAINS"), ",")
	if len(missing) > 0 && (slices.Contains(required, "1") || slices.Contains(required, lang)) {
		t.Fatal(strings.Join(missing, "\n"))
	}
	if len(missing) > 0 {
		t.Skip("not built: ", strings.Join(missing, "\n"))
	}
}

// compareFile holds a file against its copy, or writes the copy.
func compareFile(t *testing.T, path, copied string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(copied); err != nil || !bytes.Equal(have, text) {
		t.Errorf("%s is not the same as %s (%v); write it anew as below", copied, path, err)
	}
}

func compareBuild(t *testing.T, file *File, dirs Dirs, shipped string) {
	needTools(t, file.Build, file.Lang)
	dirs.Tmp = t.TempDir()
	dirs.Out = filepath.Join(dirs.Tmp, "built.wasm")
	if err := file.Build.Run(t.Context(), dirs); err != nil {
		t.Fatal(err)
	}
	built, err := os.ReadFile(dirs.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, sha256 %x", len(built), sha256.Sum256(built))
	if *write {
		if err := os.WriteFile(shipped, built, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, built) {
		t.Errorf("%s: %d bytes, sha256 %x, is not what its source gives; write it anew by\n"+
			"go test ./plugins/policyfile -run TestShippedModules -write",
			shipped, len(have), sha256.Sum256(have))
	}
	if bytes.Contains(built, []byte(filepath.Dir(dirs.SDK))) {
		t.Error("the module names the folder it was built in")
	}
}

func TestMissingNamesToolAndInstallLine(t *testing.T) {
	b := Build{Tools: []Tool{
		{Command: []string{"no-such-compiler"}, Version: "7", Install: "get it"},
		{Command: []string{"go", "version"}, Version: "go version", Install: "get go"},
		{Command: []string{"go", "version"}, Version: "go0.0", Install: "get another"},
	}}
	missing := b.Missing(t.Context())
	if len(missing) != 2 || !strings.Contains(missing[0], "get it") ||
		!strings.Contains(missing[1], "get another") {
		t.Errorf("%q", missing)
	}
}
