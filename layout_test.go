// Package layout_test holds what is true of the module as a whole: who may import whom, that pure
// packages stay pure, that the map in ARCHITECTURE.md shows folders that exist, and the style
// budgets (tidy_test.go).
package layout_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/kvrelay/engine/"

// row is one package, which must be there: all of this module it may import, and what it may import
// from outside. Of the standard library everything is allowed but what the list confined names. A
// word may be restricted to one file: "conn.go:net". Every word of a row must be used.
type row struct {
	pkg     string
	imports string
	outside string
	tests   string // what only its tests may import as well, of both kinds
}

// layout is the architecture. A new edge is a design change; RATIONALE.md says why it is there.
var layout = []row{
	{pkg: "abi"},
	{pkg: "abi/fields", tests: "abi"},
	{pkg: "abi/gen", outside: "github.com/BurntSushi/toml", tests: "os/exec"},
	{pkg: "abi/guest/go", imports: "abi", outside: "unsafe"},

	{pkg: "gpu"},
	{
		pkg: "gpu/cpu", imports: "gpu", outside: "unsafe syscall golang.org/x/sys/cpu",
		tests: "gpu/gputest",
	},
	{pkg: "gpu/cpu/asm"},
	{
		pkg: "gpu/cuda", imports: "gpu gpu/cpu gpu/cuda/driver gpu/cuda/drv gpu/cuda/kernels",
		outside: "unsafe driver_cu.go:gorgonia.org/cu driver_cu_work.go:gorgonia.org/cu",
		tests:   "gpu/cuda/fake gpu/gputest os/exec syscall",
	},
	{pkg: "gpu/cuda/driver", imports: "gpu"},
	{
		pkg: "gpu/cuda/kernels", imports: "gpu",
		tests: "gpu/cuda gpu/cuda/driver os/exec",
	},
	{
		pkg: "gpu/cuda/drv", imports: "gpu/cuda/driver", outside: "C unsafe", tests: "os/exec",
	},
	{pkg: "gpu/cuda/fake", imports: "gpu gpu/cpu gpu/cuda/driver gpu/cuda/kernels"},
	{pkg: "gpu/gputest", imports: "gpu gpu/cpu", outside: "testing"},

	{pkg: "host/config", outside: "github.com/BurntSushi/toml"},
	{
		pkg:     "host/tokenizer",
		outside: "github.com/ardanlabs/jinja golang.org/x/text",
	},
	{pkg: "host/hub", outside: "net net/http golang.org/x/sys", tests: "syscall"},
	{pkg: "host/metrics", outside: "net/http github.com/prometheus/client_golang"},
	{pkg: "host/kvcache"},
	{pkg: "host/openai", outside: "net/http"},
	{
		pkg: "host/access", imports: "host/openai",
		outside: "net/http golang.org/x/time",
	},
	{pkg: "host/sample"},
	{
		pkg:   "host/constrain",
		tests: "host/model/embedded host/tokenizer github.com/santhosh-tekuri/jsonschema",
	},
	{pkg: "host/placement"},
	{pkg: "host/trace", outside: "otlp.go:net/http", tests: "net/http"},
	{pkg: "host/model/mmap", outside: "syscall unsafe golang.org/x/sys"},
	{pkg: "host/model/safetensors", imports: "host/model/mmap"},
	{pkg: "host/model/gguf", imports: "host/model/mmap", tests: "host/tokenizer"},
	{
		pkg: "host/model/quant", imports: "gpu host/model/safetensors",
		tests: "host/model/gguf",
	},
	{pkg: "host/model/embedded"},
	{pkg: "host/batch", imports: "host/kvcache"},
	{pkg: "host/prefix", imports: "host/kvcache"},
	{pkg: "host/transfer/nearby", outside: "net ring.go:unsafe syscall golang.org/x/sys"},
	{
		pkg: "host/transfer/lanes", imports: "host/transfer/nearby",
		outside: "golang.org/x/sys", tests: "os/exec",
	},
	{
		pkg: "host/transfer", imports: "host/kvcache host/transfer/lanes host/transfer/nearby",
		outside: "conn.go:net dial.go:net mux.go:net",
		tests:   "net syscall",
	},
	{pkg: "host/scheduler", imports: "abi host/batch host/kvcache host/prefix"},
	{
		pkg:     "host/model",
		imports: "gpu host/batch host/kvcache host/model/gguf host/model/safetensors",
		tests:   "gpu/cpu gpu/cuda gpu/cuda/driver gpu/cuda/fake host/model/embedded",
	},
	{
		pkg: "host/model/export",
		imports: "gpu host/model host/model/gguf host/model/quant host/model/safetensors " +
			"host/tokenizer",
		tests: "gpu/cpu host/batch host/kvcache",
	},
	{pkg: "host/generation", imports: "host/sample"},
	{
		pkg: "host/engine",
		imports: "host/batch host/generation host/kvcache host/sample host/scheduler " +
			"host/transfer",
		tests: "abi net",
	},
	{
		pkg: "host/sim",
		imports: "abi host/batch host/engine host/generation host/kvcache host/placement " +
			"host/sample host/scheduler host/transfer",
	},
	{
		pkg: "host/api",
		imports: "host/access host/constrain host/generation host/model/safetensors " +
			"host/openai host/sample host/tokenizer host/trace",
		outside: "net net/http",
		tests:   "host/model/embedded",
	},
	{
		pkg: "host/bench", imports: "gpu host/batch host/kvcache host/openai host/sample",
		outside: "net/http",
		tests:   "gpu/cpu",
	},
	{pkg: "host/admin", imports: "plugins", outside: "net/http"},
	{
		pkg:     "host/router",
		imports: "host/generation host/openai host/placement host/tokenizer host/trace",
		outside: "net net/http",
	},

	{
		pkg: "plugins", imports: "abi plugins/builtin plugins/fuel plugins/lint",
		outside: "github.com/tetratelabs/wazero os/exec compile_unix.go:syscall " +
			"compile_darwin.go:syscall golang.org/x/sys",
		tests: "mutants_linux_test.go:syscall",
	},
	{
		pkg:     "plugins/authortools",
		imports: "abi abi/fields plugins plugins/lint plugins/policyfile",
		outside: "github.com/BurntSushi/toml github.com/santhosh-tekuri/jsonschema " +
			"golang.org/x/text os/exec",
		tests: "plugins/builtin",
	},
	{pkg: "plugins/builtin"},
	{pkg: "plugins/fuel", imports: "plugins/lint", tests: "github.com/tetratelabs/wazero"},
	{pkg: "plugins/lint"},
	{pkg: "plugins/policyfile", outside: "github.com/BurntSushi/toml os/exec"},
	{pkg: "plugins/score", imports: "abi abi/fields", tests: "os/exec plugins"},
	{pkg: "plugins/plugintest", imports: "abi plugins plugins/testdata", outside: "testing"},

	{
		pkg: "examples/plugins",
		tests: "abi abi/guest/go host/batch host/engine host/generation host/kvcache " +
			"host/scheduler host/transfer plugins plugins/authortools plugins/builtin " +
			"os/exec plugins/plugintest plugins/policyfile",
	},
	{pkg: "examples/plugins/*", imports: "abi abi/guest/go", tests: "plugins plugins/plugintest"},

	{
		pkg: "cmd/engine", imports: "*",
		outside: "net net/http os/exec syscall github.com/spf13/cobra charm.land/bubbletea " +
			"charm.land/lipgloss " +
			"github.com/lmittmann/tint github.com/vbauerster/mpb golang.org/x/sys",
		tests: "github.com/santhosh-tekuri/jsonschema",
	},
}

// confined are the parts of the standard library that only a row that names them may import: what
// opens connections, starts processes, or goes around the type system. A trailing slash takes in
// the packages below.
var confined = []string{
	"C", "net", "net/http", "net/http/", "net/rpc/", "os/exec", "plugin", "syscall", "testing",
	"unsafe",
}

// pure packages reach none of these, not even through others of this module.
var pure = map[string][]string{
	"host/scheduler": {"gpu", "plugins", "host/engine", "host/transfer"},
	"host/transfer":  {"gpu", "plugins", "host/engine", "host/scheduler"},
	"host/placement": {"gpu", "plugins", "host/engine", "host/transfer"},
}

// wasip1 are the packages that promise to compile for a guest.
var wasip1 = []string{"abi", "abi/guest/go"}

// pkg is what the source of one package imports, in all files and whatever their build tags, so
// that every tag set is judged at once.
type pkg struct {
	imports map[string][]string // import path → files that import it
	tests   map[string][]string
}

func TestLayout(t *testing.T) {
	packages := readPackages(t)
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		r := rowOf(name)
		if r == nil {
			t.Errorf("%s: not in the layout; add a row, and the reason to RATIONALE.md", name)
			continue
		}
		used[r.pkg] = true
		judge(t, name, r, packages[name])
	}
	for _, r := range layout {
		if !used[r.pkg] {
			t.Errorf("%s: in the layout, but not there", r.pkg)
		}
	}
}

// rowOf returns the row of a package; a row may end in "/*".
func rowOf(name string) *row {
	for i := range layout {
		if ok, _ := path.Match(layout[i].pkg, name); ok {
			return &layout[i]
		}
	}
	return nil
}

// judge reports each import that the row does not allow and each that it allows for nothing.
func judge(t *testing.T, name string, r *row, p pkg) {
	t.Helper()
	allowed := strings.Fields(r.imports + " " + r.outside)
	inTests := append(slices.Clone(allowed), strings.Fields(r.tests)...)
	inTests = append(inTests, name, "testing")
	used := map[string]bool{}
	check := func(imports map[string][]string, allowed []string, what string) {
		for _, imported := range slices.Sorted(maps.Keys(imports)) {
			short := strings.TrimPrefix(imported, modulePath)
			inModule := short != imported
			if !inModule && isFree(imported) || inModule && r.imports == "*" {
				continue
			}
			for _, file := range imports[imported] {
				covers := func(word string) bool { return allows(word, short, file) }
				i := slices.IndexFunc(allowed, covers)
				if i < 0 {
					t.Errorf("%s/%s: %s may not import %s", name, file, what, short)
				} else {
					used[allowed[i]] = true
				}
			}
		}
	}
	check(p.imports, allowed, "this package")
	check(p.tests, inTests, "these tests")
	for _, a := range append(allowed, strings.Fields(r.tests)...) {
		if a != "*" && !used[a] && !strings.Contains(r.pkg, "*") {
			t.Errorf("%s: the layout allows %s, which nothing imports any more", name, a)
		}
	}
}

// isFree says whether an import is of the standard library and not confined.
func isFree(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	if strings.Contains(first, ".") {
		return false
	}
	return !slices.ContainsFunc(confined, func(c string) bool {
		return imported == c || strings.HasSuffix(c, "/") && strings.HasPrefix(imported, c)
	})
}

// allows says whether a word of a row covers an import in a file.
func allows(word, imported, file string) bool {
	if only, rest, ok := strings.Cut(word, ":"); ok {
		if only != file {
			return false
		}
		word = rest
	}
	first, _, _ := strings.Cut(word, "/")
	below := strings.Contains(first, ".") || word == "net/http"
	return imported == word || below && strings.HasPrefix(imported, word+"/")
}

// readPackages parses the imports of every Go file of the module.
func readPackages(t *testing.T) map[string]pkg {
	t.Helper()
	packages := map[string]pkg{}
	for _, file := range goFiles(t) {
		name := path.Dir(file)
		if name == "." {
			continue // The root holds only these tests.
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := packages[name]
		if !ok {
			p = pkg{map[string][]string{}, map[string][]string{}}
			packages[name] = p
		}
		into := p.imports
		if strings.HasSuffix(file, "_test.go") {
			into = p.tests
		}
		for _, spec := range source.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			into[imported] = append(into[imported], path.Base(file))
		}
	}
	return packages
}

// goFiles lists the module's Go files with slashes. Folders that Go ignores, and modules of their
// own, are not part of it.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != "." {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil || base == "testdata" || base[0] == '.' || base[0] == '_' {
				return filepath.SkipDir
			}
		}
		if !d.IsDir() && filepath.Ext(name) == ".go" {
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPure(t *testing.T) {
	packages := readPackages(t)
	for name, forbidden := range pure {
		seen := map[string]bool{}
		var visit func(string, []string)
		visit = func(at string, route []string) {
			route = append(route, at)
			if slices.Contains(forbidden, at) {
				t.Errorf("%s must stay pure, but reaches %s", name, strings.Join(route[1:], " → "))
			}
			if seen[at] {
				return
			}
			seen[at] = true
			for imported := range packages[at].imports {
				if next, ok := strings.CutPrefix(imported, modulePath); ok {
					visit(next, slices.Clone(route))
				}
			}
		}
		visit(name, nil)
	}
}

func TestGuestPackagesCompile(t *testing.T) {
	for _, name := range wasip1 {
		build := exec.Command("go", "build", "./"+name)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s for wasip1: %v\n%s", name, err, out)
		}
	}
}

// inTree finds paths below the top folders in a text.
var inTree = regexp.MustCompile(`\b(?:abi|cmd|examples|gpu|host|plugins)(?:/[\w.{},*-]+)+/?`)

// TestArchitectureNamesWhatIsThere checks every path in ARCHITECTURE.md: each is a folder or file
// of the tree, or a pattern or {a,b} list that matches some.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, found := range inTree.FindAllString(line, -1) {
			for _, name := range expand(strings.TrimRight(found, "./,")) {
				if matches, err := filepath.Glob(name); err != nil || len(matches) == 0 {
					t.Errorf("ARCHITECTURE.md:%d: %s is not there", i+1, name)
				}
			}
		}
	}
}

// goName ends a path that names something in a package: host/kvcache.PageID.
var goName = regexp.MustCompile(`\.[A-Z]\w*$`)

// expand turns a/{b,c} into a/b and a/c.
func expand(name string) []string {
	name = goName.ReplaceAllString(name, "")
	before, rest, ok := strings.Cut(name, "{")
	list, after, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return []string{name}
	}
	var names []string
	for choice := range strings.SplitSeq(list, ",") {
		names = append(names, fmt.Sprint(before, choice, after))
	}
	return names
}
