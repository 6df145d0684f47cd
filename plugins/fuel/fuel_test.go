package fuel

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/plugins/lint"
)

// sharedDir finds the data that lies beside the repository, or skips the test.
func sharedDir(t testing.TB) string {
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return dir
}

// vec is a vector of items: their number, then the items.
func vec(items ...string) string {
	return string(appendU32(nil, uint32(len(items)))) + strings.Join(items, "")
}

// module is one of type (i32) -> i32 functions, a memory of 1 to 4 pages and a table of 1 to 9. All
// functions are exported as a, b, c; each has an i32 local.
func module(bodies ...string) []byte {
	var types, exports, codes []string
	for i, b := range bodies {
		types = append(types, "\x00")
		exports = append(exports, "\x01"+string(rune('a'+i))+"\x00"+string(rune(i)))
		codes = append(codes, string(appendName(nil, "\x01\x01\x7f"+b+"\x0b")))
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []struct {
		id      byte
		payload string
	}{
		{lint.SectionType, vec("\x60\x01\x7f\x01\x7f")},
		{lint.SectionFunction, vec(types...)},
		{lint.SectionTable, vec("\x70\x01\x01\x09")},
		{lint.SectionMemory, vec("\x01\x01\x04")},
		{lint.SectionExport, vec(exports...)},
		{lint.SectionCode, vec(codes...)},
	} {
		out = appendSection(out, s.id, []byte(s.payload))
	}
	return out
}

// meter checks a module and meters it.
func meter(t testing.TB, wasm []byte, initial int64) []byte {
	t.Helper()
	m, problems := lint.Check(wasm, lint.Limits{})
	if m == nil {
		t.Fatalf("refused: %v", problems)
	}
	out, _, err := Meter(m, initial)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// guest is an instance of a metered module.
type guest struct {
	api.Module
	fuel api.MutableGlobal
}

// start instantiates a metered module, compiled or interpreted. The error is of compiling or of the
// start function.
func start(t testing.TB, config wazero.RuntimeConfig, wasm []byte) (guest, error) {
	t.Helper()
	ctx := t.Context()
	rt := wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(256))
	t.Cleanup(func() { rt.Close(context.Background()) })
	m, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return guest{}, err
	}
	return guest{m, m.ExportedGlobal(Export).(api.MutableGlobal)}, nil
}

// call runs an export with the given fuel and says how much it used.
func (g guest) call(name string, fuel int64, args ...uint64) (int64, []uint64, error) {
	g.fuel.Set(uint64(fuel))
	results, err := g.ExportedFunction(name).Call(context.Background(), args...)
	return fuel - int64(g.fuel.Get()), results, err
}

func configs() map[string]wazero.RuntimeConfig {
	return map[string]wazero.RuntimeConfig{
		"default":     wazero.NewRuntimeConfig(),
		"interpreter": wazero.NewRuntimeConfigInterpreter(),
	}
}

// The bodies that the tests of fuel call, by export.
const (
	// a: count n down to 0 in a loop and return the turns.
	countDown = "\x03\x40\x20\x00\x04\x40" + // loop, if n
		"\x20\x01\x41\x01\x6a\x21\x01" + // turns++
		"\x20\x00\x41\x01\x6b\x21\x00" + // n--
		"\x0c\x01\x0b\x0b\x20\x01" // again; end; end; turns
	// b: f(n) = n == 0 ? 0 : f(n-1)
	recurse = "\x20\x00\x45\x04\x7f\x41\x00\x05\x20\x00\x41\x01\x6b\x10\x01\x0b"
	// c: fill n bytes from 0.
	fill = "\x41\x00\x41\x07\x20\x00\xfc\x0b\x00\x20\x00"
	// d: grow the memory by n pages.
	grow = "\x20\x00\x40\x00"
	// e: grow the table by n entries.
	growTable = "\xd0\x70\x20\x00\xfc\x0f\x00"
)

// TestExactFuel knows by hand what each body costs: 16 for the entry, 2 for parameter and local,
// and the instructions of each region as often as it is entered.
func TestExactFuel(t *testing.T) {
	wasm := meter(t, module(countDown, recurse, fill, grow, growTable), 0)
	for name, config := range configs() {
		g, err := start(t, config, wasm)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			export string
			n      uint64
			want   int64
		}{
			{"a", 0, 18 + 3 + 13}, {"a", 10, 18 + 3 + 11*13}, {"b", 0, 18 + 11},
			{"b", 7, 8 * (18 + 11)}, {"c", 80, 18 + 6 + 10}, {"c", 0, 18 + 6},
			{"d", 0, 18 + 2 + 256}, {"d", 1, 18 + 2 + 256 + 8192}, {"e", 5, 18 + 3 + 256 + 5},
		} {
			used, _, err := g.call(c.export, 1_000_000, c.n)
			if err != nil || used != c.want {
				t.Errorf("%s: %s(%d) used %d, want %d (%v)", name, c.export, c.n, used, c.want, err)
			}
			if used, _, err := g.call(c.export, c.want-1, c.n); err == nil || used < c.want {
				t.Errorf("%s: %s(%d) ran with one unit too little", name, c.export, c.n)
			}
		}
	}
}

// TestBounded calls what would never end, or would take all memory, and finds it stopped by the
// meter: the rest is negative.
func TestBounded(t *testing.T) {
	wasm := meter(t, module(countDown, recurse, fill, grow, growTable), 0)
	for name, config := range configs() {
		for _, c := range []struct {
			export string
			n      uint64
		}{
			{"a", math.MaxUint32}, {"b", math.MaxUint32}, {"c", math.MaxUint32}, {"d", 65536},
			{"e", math.MaxUint32},
		} {
			if name == "interpreter" && c.export == "b" {
				continue // It allows 2000 calls in each other, and says stack overflow.
			}
			g, err := start(t, config, wasm)
			if err != nil {
				t.Fatal(err)
			}
			if used, _, err := g.call(c.export, 100_000, c.n); err == nil || used <= 100_000 {
				t.Errorf("%s: %s used %d: %v", name, c.export, used, err)
			}
		}
	}
}

// TestDispatch shows why a loop around a br_table is charged block by block: a turn through a small
// case of a large function must not pay for the whole of it.
func TestDispatch(t *testing.T) {
	big := strings.Repeat("\x41\x01\x1a", 500)
	body := "\x03\x40" + strings.Repeat("\x02\x40", 5) + // loop, five blocks
		"\x20\x01\x0e\x04\x00\x01\x02\x03\x04\x0b" + // br_table by the local, always case 0
		"\x20\x00\x45\x0d\x03\x20\x00\x41\x01\x6b\x21\x00\x0c\x04\x0b" + // leave, or n-- and again
		big + "\x0c\x02\x0b" + big + "\x0c\x01\x0b" + big + "\x0c\x00\x0b" + "\x0b\x20\x00"
	g, err := start(t, wazero.NewRuntimeConfig(), meter(t, module(body), 0))
	if err != nil {
		t.Fatal(err)
	}
	used, results, err := g.call("a", 1_000_000, 100)
	if err != nil || results[0] != 0 {
		t.Fatalf("got %v: %v", results, err)
	}
	if used > 100*40 {
		t.Errorf("100 turns of about 20 instructions used %d", used)
	}
}

// TestStart: a start function runs under the initial fuel.
func TestStart(t *testing.T) {
	loop := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x08\x01\x00" +
		"\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b")
	if _, err := start(t, wazero.NewRuntimeConfig(), meter(t, loop, 1000)); err == nil {
		t.Error("an endless start function ended well")
	}
}

// TestShippedModules meters real modules: they link, keep their exports, and grow moderately.
func TestShippedModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "builtin", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no shipped modules: %v", err)
	}
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, problems := lint.Check(wasm, lint.Limits{})
		if m == nil {
			t.Fatalf("%s: %v", file, problems)
		}
		out, stats, err := Meter(m, 1000)
		if err != nil || stats.After != len(out) {
			t.Fatalf("%s: %v, %+v for %d bytes", file, err, stats, len(out))
		}
		t.Logf("%s: %+v, %.1f %% larger", filepath.Base(file), stats, 100*stats.Growth())
		if stats.Growth() > 0.4 {
			t.Errorf("%s: %.1f %% larger", file, 100*stats.Growth())
		}
		again, stats, _ := Meter(m, 1000)
		if !bytes.Equal(out, again) || stats.Points == 0 {
			t.Errorf("%s: metered twice, not the same", file)
		}
	}
}

// TestHostileModules calls every export of the hostile modules that pass the lint. Each call ends
// by itself, in bounded time and memory; the test's own time limit says so.
func TestHostileModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t), "prototypes", "wasm", "bad", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no hostile modules: %v", err)
	}
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := lint.Check(wasm, lint.Limits{})
		if m == nil || testing.Short() && len(wasm) > 20_000 {
			continue
		}
		out, _, err := Meter(m, 2_000_000)
		if err != nil {
			t.Fatal(err)
		}
		g, err := start(t, wazero.NewRuntimeConfig(), out)
		if err != nil {
			t.Logf("%s: %.80v", filepath.Base(file), err)
			continue
		}
		for _, e := range m.Exports {
			if e.Kind == lint.ExportFunction {
				args := make([]uint64, len(m.TypeOf(e.Index).Params))
				used, _, err := g.call(e.Name, 2_000_000, args...)
				t.Logf("%s: %s used %d, %.80v", filepath.Base(file), e.Name, used, err)
			}
		}
	}
}

// FuzzMeter: what the lint accepts can be metered, and the result is well formed, with one export
// and one global more, and with the same instructions in the same order between the charges.
func FuzzMeter(f *testing.F) {
	f.Add(module(countDown, recurse, fill, grow, growTable))
	files, _ := filepath.Glob(filepath.Join("..", "builtin", "*.wasm"))
	for _, file := range files {
		if wasm, err := os.ReadFile(file); err == nil {
			f.Add(wasm)
		}
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, _ := lint.Check(wasm, lint.Limits{})
		if m == nil {
			return
		}
		out, _, err := Meter(m, 1)
		if err != nil {
			t.Fatal(err)
		}
		states, _ := States(m)
		sameProgram(t, m, out, 1, 1+len(states))
		if out, err = Trace(m, 1); err != nil {
			t.Fatal(err)
		}
		sameProgram(t, m, out, 2, 2+len(states))
	})
}

// sameProgram checks that a metered module is the module with so many globals and exports more, of
// reserved names, and instructions between its own.
func sameProgram(t *testing.T, m *lint.Module, out []byte, globals, exports int) {
	wide := lint.Limits{BodyBytes: 16 << 20, Locals: 1 << 20, Branches: 1 << 20, Globals: 1 << 20,
		Exports: 1 << 20}
	// The one thing the lint must find are the reserved names.
	_, problems := lint.Check(out, wide)
	if len(problems) != exports {
		t.Fatalf("the metered module: %v", problems)
	}
	for _, p := range problems {
		if p.Code != lint.BadExport {
			t.Fatalf("the metered module: %v", p)
		}
	}
	hidden := bytes.ReplaceAll(out, []byte(lint.ReservedExport),
		[]byte(strings.Repeat("x", len(lint.ReservedExport))))
	metered, problems := lint.Check(hidden, wide)
	if metered == nil {
		t.Skip(problems)
	}
	if len(metered.Globals) != len(m.Globals)+globals ||
		len(metered.Exports) != len(m.Exports)+exports {
		t.Fatalf("not %d globals and %d exports more", globals, exports)
	}
	for i, b := range m.Bodies {
		contained(t, b.Code, metered.Bodies[i].Code)
	}
}

// contained checks that the instructions of code are in metered, in order.
func contained(t *testing.T, code, metered []byte) {
	var want [][]byte
	lint.Instructions(code, func(in lint.Instruction) { want = append(want, code[in.At:in.End]) })
	lint.Instructions(metered, func(in lint.Instruction) {
		if len(want) > 0 && bytes.Equal(want[0], metered[in.At:in.End]) {
			want = want[1:]
		}
	})
	if len(want) > 0 {
		t.Fatalf("%d instructions are missing, the first % x", len(want), want[0])
	}
}
