package authortools

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/builtin"
)

// missing skips a language without tools. Go is always there; with ENGINE_REQUIRE_TOOLCHAINS=1 all
// are.
func missing(t *testing.T, l Language, err error) {
	t.Helper()
	var m *MissingTool
	if !errors.As(err, &m) {
		t.Fatal(err)
	}
	if l.Name == "go" || os.Getenv("ENGINE_REQUIRE_TOOLCHAINS") == "1" {
		t.Fatal(err)
	}
	if m.Install == "" {
		t.Error("no line installs what is missing")
	}
	t.Skip(err)
}

// TestFromNothingToTested makes, builds, checks and tests a policy in each language whose tools are
// installed, in a folder outside of the repository. Go is always there.
func TestFromNothingToTested(t *testing.T) {
	for _, l := range Languages() {
		t.Run(l.Short, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "mine")
			if err := Create(dir, "mine", l); err != nil {
				t.Fatal(err)
			}
			if err := Create(dir, "mine", l); err == nil {
				t.Error("a folder that is not empty is taken")
			}
			built, err := Build(t.Context(), dir, nil)
			if err != nil {
				missing(t, l, err)
			}
			t.Logf("%s: %d bytes in %v", built.Tool, len(built.Wasm), built.Took)
			note, err := os.ReadFile(filepath.Join(dir, "mine.build.json"))
			if err != nil || !strings.Contains(string(note), `"sha256"`) {
				t.Errorf("%v, %s", err, note)
			}
			r := plugins.Check(t.Context(), built.Wasm, nil, plugins.DefaultLimits())
			if !r.OK() || len(r.Warnings) > 0 {
				t.Errorf("%+v, %v", r.Problems, r.Warnings)
			}
			tested(t, dir, built.Wasm)
		})
	}
}

// tested runs the template's own cases, and made-up tables.
func tested(t *testing.T, dir string, wasm []byte) {
	t.Helper()
	cases, err := ReadCases(dir)
	if err != nil || len(cases) < 4 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	verdicts, err := RunCases(t.Context(), wasm, cases)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		if !v.OK() {
			t.Errorf("%s: %s %s\n%s", v.Name, v.Where, v.Why, strings.Join(v.Table, "\n"))
		}
	}
	f, err := Fuzz(t.Context(), wasm, FuzzOptions{Seed: 1, States: 300, Longest: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states in %v", f.States, f.Took)
	if name := "sjf-aging"; strings.Contains(cases[3].Name, "picks_shortest") {
		sameAs(t, wasm, name)
	}
	if f.Bad != nil {
		t.Errorf("%s\n%s", f.Bad.Why, f.Bad.Text)
	}
}

// sameAs compares the template, in whatever language, with the shipped policy of the same rule.
func sameAs(t *testing.T, wasm []byte, name string) {
	t.Helper()
	shipped, _ := builtin.Module(name)
	one, err := bench(t.Context(), wasm, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := bench(t.Context(), shipped, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	m := &maker{chance: rand.New(rand.NewPCG(5, 5))}
	for range 300 {
		one.Again()
		two.Again()
		var before *situation
		for i, s := range m.sequence() {
			v := s.show(before, uint64(i+1), testDecisions)
			a, _, err := one.Decide(v, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := two.Decide(v, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a, b) {
				t.Fatalf("got %v, %s has %v", a, name, b)
			}
			before = s
		}
	}
}
