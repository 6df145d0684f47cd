package authortools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/builtin"
)

// guest reads one of the small guests of package plugins.
func guest(t *testing.T, name string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("..", "testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// TestFuzzShrinks finds what misbehaving guests do wrong, and leaves nothing in the table that is
// not
// needed for it. The saved case must fail again.
func TestFuzzShrinks(t *testing.T) {
	for _, c := range []struct {
		name, why string
		records   int
	}{
		{"zero_tokens", "0 tokens", 1},
		{"wrong_id", "id_low", 1},
		{"repeated_slot", "listed twice", 1},
		{"unknown_slot", "the table has", 0},
		{"trap", "unreachable", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := FuzzOptions{Seed: 3, States: 5000, Longest: time.Minute}
			f, err := Fuzz(t.Context(), guest(t, c.name), o)
			if err != nil {
				t.Fatal(err)
			}
			if f.Bad == nil {
				t.Fatalf("nothing found in %d states", f.States)
			}
			if !strings.Contains(f.Bad.Why, c.why) || f.Bad.Records > c.records {
				t.Errorf("%d records, %s\n%s", f.Bad.Records, f.Bad.Why, f.Bad.Text)
			}
			cases, err := ParseCases("found.toml", f.Bad.Text)
			if err != nil {
				t.Fatalf("%v\n%s", err, f.Bad.Text)
			}
			verdicts, err := RunCases(t.Context(), guest(t, c.name), cases)
			if err != nil || verdicts[0].OK() {
				t.Errorf("the saved case passes, %v\n%s", err, f.Bad.Text)
			}
		})
	}
}

const failing = `[[case]]
name = "order"
records = [{ remaining = 10 }, { remaining = 5 }]
order = [1, 2]

[[case]]
name = "later"
records = [{ remaining = 10 }]
max_tokens = 10
[[case.then]]
after = "1s"
records = [{ remaining = 9, priority = -2 }, {}, { id = 7, age = "1ms", remaining = 700 }]
  max_tokens = 20

[[case]]
name = "never"
records = [{ remaining = 10 }]
never = [1]

[[case]]
name = "plan"
records = [{ remaining = 10 }]
plan = [{ id = 1, tokens = 11 }]

[[case]]
name = "good"
config = { aging_tokens_per_s = 0 }
records = [{ remaining = 10 }, { state = "decoding" }, { state = "prefilling", remaining = 3 }]
plan = [{ id = 3, tokens = 3 }, { id = 1 }]
`

func TestCasesSayWhereTheyFail(t *testing.T) {
	cases, err := ParseCases("tests/a.toml", failing)
	if err != nil {
		t.Fatal(err)
	}
	wasm, _ := builtin.Module("sjf-aging")
	verdicts, err := RunCases(t.Context(), wasm, cases)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ where, why string }{
		{"tests/a.toml:4:1", "expected the order [1 2], got [2 1]"},
		{"tests/a.toml:13:3", "expected sum of tokens ≤ 20, got 521"},
		{"tests/a.toml:18:1", "request 1 runs"},
		{"tests/a.toml:23:1", "decision 1, request 1: expected 11 tokens, got 10"},
		{"", ""},
	}
	for i, v := range verdicts {
		if v.Where != want[i].where || v.Why != want[i].why {
			t.Errorf("%s: %s %s, want %+v\n%s", v.Name, v.Where, v.Why, want[i],
				strings.Join(v.Table, "\n"))
		}
	}
}

func TestBadCasesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[[case]]\nrecords = []":                                            "name",
		"[[case]]\nname = \"a\"\nrecords = [{ remainder = 1 }]":             "no field remainder",
		"[[case]]\nname = \"a\"\nrecords = [{ kind = 256 }]":                "kind",
		"[[case]]\nname = \"a\"\nrecords = [{ state = \"done\" }]":          "state",
		"[[case]]\nname = \"a\"\nrecords = [{ age = \"old\" }]":             "age",
		"[[case]]\nname = \"a\"\nheader = { budget = 1 }":                   "no field budget",
		"[[case]]\nname = \"a\"\nrecords = [{ id = 2 }, { id = 2 }]":        "one id",
		"[[case]]\nname = \"a\"\norders = [1]":                              "unknown key",
		"[[case]]\nname = \"a\"\n[[case.then]]\nafter = \"soon\"":           "soon",
		"[[case]]\nname = \"a\"\nrecords = [{ remaining = \"ten\" }]":       "remaining",
		"[[case]]\nname = \"a\"\nheader = { token_budget = 5000000000000 }": "token_budget",
	} {
		_, err := ParseCases("a.toml", text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseCases(f *testing.F) {
	f.Add(failing)
	f.Fuzz(func(t *testing.T, text string) { _, _ = ParseCases("a.toml", text) })
}

// TestChangedList compares the list with a naive one.
func TestChangedList(t *testing.T) {
	one := &situation{records: []abi.Record{{ID: 1, State: 1}, {}, {ID: 2, State: 1}}}
	v := one.show(nil, 1, 8)
	if len(v.Changed) != 3 || v.Header.Flags&abi.FlagResync == 0 || v.Header.NWaiting != 2 {
		t.Errorf("%+v", v)
	}
	two := &situation{records: []abi.Record{{ID: 1, State: 1}}}
	v = two.show(one, 2, 8)
	if len(v.Changed) != 1 || v.Changed[0] != 2 || v.Header.NSlots != 3 {
		t.Errorf("%+v", v)
	}
}
