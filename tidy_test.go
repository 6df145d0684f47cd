package layout_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Budgets, not goals: the median function is near ten lines.
const (
	maxFuncLines = 70
	maxFileLines = 500
	maxCommand   = 150 // lines of a file with a subcommand: it parses flags and calls
	maxColumns   = 100
	maxParams    = 5
	maxMethods   = 4
)

// vague names say nothing about what a package or folder owns.
var vague = []string{
	"base", "common", "core", "helper", "helpers", "misc", "shared", "types", "util", "utils",
}

// deterministic packages are replayed from a seed: they may not read time or chance, nor start
// anything that runs by itself. Of host/transfer that is the protocol, not what pumps it.
var deterministic = []string{
	"host/batch", "host/kvcache", "host/placement", "host/prefix", "host/scheduler", "host/sim",
	"host/transfer",
}

// pumps are the files of deterministic packages that meet the clock and the network.
var pumps = []string{"host/transfer/conn.go", "host/transfer/dial.go", "host/transfer/mux.go"}

// seeded are deterministic packages that draw chance, from generators they are given seeds for.
var seeded = []string{"host/sim"}

// generators are the names of math/rand that a seeded package may use: the others draw from a
// source that nobody can repeat.
var generators = []string{"New", "NewPCG", "Rand"}

// clock are the functions of package time that read it or wait.
var clock = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

// chance are the packages that deal in it.
var chance = []string{"math/rand", "math/rand/v2", "crypto/rand"}

// manyMethods are the interfaces that may have more than maxMethods.
var manyMethods = []string{"gpu.Kernels", "gpu.Memory"}

// generated is how a file says that a program wrote it; such files are not judged.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestTidy(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range goFiles(t) {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(file)
		if generated.Match(source) {
			has := bytes.Contains(source, []byte("\n// Package "))
			documented[folder] = documented[folder] || has
			continue
		}
		tidyLines(t, file, source)
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(vague, parsed.Name.Name) || slices.Contains(vague, path.Base(folder)) {
			t.Errorf("%s: a name that says what the package owns, please", file)
		}
		tidySyntax(t, fset, parsed, file)
		documented[folder] = documented[folder] || parsed.Doc != nil
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", folder)
		}
	}
}

// tidyLines checks the length of the file and of each line; a tab counts four.
func tidyLines(t *testing.T, file string, source []byte) {
	t.Helper()
	lines := strings.Split(strings.TrimRight(string(source), "\n"), "\n")
	most := maxFileLines
	if bytes.Contains(source, []byte("\t\"github.com/spf13/cobra\"\n")) &&
		!strings.HasSuffix(file, "_test.go") {
		most = maxCommand
	}
	if len(lines) > most {
		t.Errorf("%s: %d lines, limit %d", file, len(lines), most)
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "//go:") {
			continue
		}
		width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if width > maxColumns {
			t.Errorf("%s:%d: %d columns, limit %d", file, i+1, width, maxColumns)
		}
	}
}

// tidySyntax checks functions and interfaces, and what a deterministic package calls.
func tidySyntax(t *testing.T, fset *token.FileSet, file *ast.File, name string) {
	t.Helper()
	test := strings.HasSuffix(name, "_test.go")
	bound := slices.Contains(deterministic, path.Dir(name)) && !test &&
		!slices.Contains(pumps, name)
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		drawn := imported == "math/rand/v2" && slices.Contains(seeded, path.Dir(name))
		if bound && slices.Contains(chance, imported) && !drawn {
			t.Errorf("%s: a deterministic package imports %s", name, imported)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			tidyFunc(t, fset, n, test)
		case *ast.FuncType:
			if count := n.Params.NumFields(); count > maxParams {
				t.Errorf("%s: %d parameters, limit %d", fset.Position(n.Pos()), count, maxParams)
			}
		case *ast.TypeSpec:
			tidyInterface(t, fset, n, file.Name.Name)
		case *ast.GoStmt:
			if bound {
				t.Errorf("%s: a goroutine in a deterministic package", fset.Position(n.Pos()))
			}
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			if ok && bound && from.Name == "time" && slices.Contains(clock, n.Sel.Name) {
				at := fset.Position(n.Pos())
				t.Errorf("%s: time.%s in a deterministic package", at, n.Sel.Name)
			}
			if ok && bound && from.Name == "rand" && !slices.Contains(generators, n.Sel.Name) {
				t.Errorf("%s: rand.%s has no seed", fset.Position(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}

// tidyFunc checks the length, and that nothing happens by importing a package.
func tidyFunc(t *testing.T, fset *token.FileSet, fn *ast.FuncDecl, test bool) {
	t.Helper()
	at := fset.Position(fn.Pos())
	if lines := fset.Position(fn.End()).Line - at.Line + 1; lines > maxFuncLines {
		t.Errorf("%s: %s is %d lines, limit %d", at, fn.Name.Name, lines, maxFuncLines)
	}
	if fn.Name.Name == "init" && fn.Recv == nil && !test {
		t.Errorf("%s: init functions are not used here; pass things in", at)
	}
}

// tidyInterface counts methods, those of embedded interfaces not included.
func tidyInterface(t *testing.T, fset *token.FileSet, spec *ast.TypeSpec, in string) {
	t.Helper()
	kind, ok := spec.Type.(*ast.InterfaceType)
	if !ok || slices.Contains(manyMethods, in+"."+spec.Name.Name) {
		return
	}
	methods := 0
	for _, field := range kind.Methods.List {
		methods += len(field.Names)
	}
	if methods > maxMethods {
		t.Errorf("%s: interface %s has %d methods, limit %d", fset.Position(spec.Pos()),
			spec.Name.Name, methods, maxMethods)
	}
}
