package authortools

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// optional are the sources in testdata/optional of one policy that has every optional export; which
// text in it is the version of its state; and what a replay tells of a trap: its place, and words.
var optional = []struct{ lang, file, version, later, trap string }{
	{"c", "policy.c", "STATE_VERSION = 1", "STATE_VERSION = 2", `^policy\.c:15 \(`},
	{"rust", "lib.rs", "u16 = 1;", "u16 = 2;", `\(.*panicked.*\) .*it was 77', src/lib\.rs:42`},
	{"go", "policy.go.txt", "STATE_VERSION = 1", "STATE_VERSION = 2", ""},
	{"as", "policy.ts", "u16 = 1", "u16 = 2", `\(.*pol_observe\) unreachable in`},
	{"zig", "policy.zig", "STATE_VERSION = 1", "STATE_VERSION = 2",
		`panic: it was 77`},
	{"wat", "policy.wat", `"\00\00" "\01\00" `, `"\00\00" "\02\00" `, `\(observe\) `},
}

// counter is one built policy with every optional export.
type counter struct {
	t    *testing.T
	host *plugins.Host
	step uint64
}

// decide shows a step and the events before it, and returns the reason of the answer: how many
// events there were.
func (c *counter) decide(events ...abi.Event) (uint16, error) {
	c.step++
	r := abi.Record{ID: 7, State: abi.StateLive, RemainingPrefill: 9}
	v := abi.View{Records: []abi.Record{r}, Changed: []uint32{0}, Events: events}
	v.Header = abi.Header{Step: c.step, NSlots: 1, TokenBudget: 64, ChunkMax: 64, ChunkAlign: 1,
		DecisionsCap: 4, NowNS: int64(c.step)}
	out, err := c.host.Decide(&v, nil)
	if err != nil {
		return 0, err
	}
	if len(out) != 1 {
		c.t.Fatalf("%d decisions", len(out))
	}
	return out[0].Reason, nil
}

// swap lets a module decide, and returns what became of the state.
func (c *counter) swap(name string, wasm []byte) string {
	c.t.Helper()
	_, err := c.host.Load(c.t.Context(), plugins.Spec{Name: name, Wasm: wasm})
	if err != nil {
		c.t.Fatal(err)
	}
	swap, err := c.host.Activate(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return swap.State
}

// buildOptional builds a policy of one language, and the same with another version of its state.
func buildOptional(t *testing.T, l Language, file string, change ...string) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mine")
	if err := Create(dir, "mine", l); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("testdata", "optional", file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	if len(change) > 0 {
		if text = strings.ReplaceAll(text, change[0], change[1]); text == string(source) {
			t.Fatalf("%s has no %q", file, change[0])
		}
	}
	to := filepath.Join(dir, filepath.FromSlash(l.Source))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := Build(t.Context(), dir, nil)
	if err != nil {
		missing(t, l, err)
	}
	return built.Wasm
}

// TestOptionalExports: in each language a policy hears of events, hands its state to the next copy,
// and says why it does not take one of another version; a trap is told with its place.
func TestOptionalExports(t *testing.T) {
	for _, o := range optional {
		t.Run(o.lang, func(t *testing.T) {
			l, err := FindLanguage(o.lang)
			if err != nil {
				t.Fatal(err)
			}
			wasm := buildOptional(t, l, o.file)
			later := buildOptional(t, l, o.file, o.version, o.later)
			faults := t.TempDir()
			h, err := plugins.New(plugins.Options{Slots: 16, Decisions: 8, FaultDir: faults})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			c := &counter{t: t, host: h}
			c.swap("mine", wasm)
			c.decide()
			if got, err := c.decide(make([]abi.Event, 3)...); got != 3 || err != nil {
				t.Errorf("three events: %d, %v", got, err)
			}
			if said := c.swap("other", wasm); said != "handed over, 8 bytes" {
				t.Errorf("the same again: %s", said)
			}
			if got, err := c.decide(make([]abi.Event, 2)...); got != 5 || err != nil {
				t.Errorf("two more after a swap: %d, %v", got, err)
			}
			said := c.swap("later", later)
			if !strings.Contains(said, "returned_error in pol_load") ||
				!strings.Contains(said, "not this version") {
				t.Errorf("another version: %s", said)
			}
			if got, err := c.decide(abi.Event{}); got != 1 || err != nil {
				t.Errorf("one event, afresh: %d, %v", got, err)
			}
			_, err = c.decide(abi.Event{Extra: 78})
			if err == nil || !strings.Contains(err.Error(), "it was 78") {
				t.Errorf("an event that it refuses: %v", err)
			}
			if o.trap != "" {
				c.traps(wasm, faults, o.trap)
			}
		})
	}
}

// traps makes a fresh host's policy trap, and wants a replay of the saved fault to name the place.
func (c *counter) traps(wasm []byte, dir, place string) {
	c.t.Helper()
	h, err := plugins.New(plugins.Options{Slots: 16, Decisions: 8, FaultDir: dir})
	if err != nil {
		c.t.Fatal(err)
	}
	n := &counter{t: c.t, host: h, step: 1000}
	n.swap("mine", wasm)
	n.decide()
	if _, err = n.decide(abi.Event{Extra: 77}); err == nil {
		c.t.Error("it did not trap")
	}
	h.Close() // The fault is saved then.
	files, err := filepath.Glob(filepath.Join(dir, "1002*.bin"))
	if err != nil || len(files) != 1 {
		c.t.Fatalf("saved: %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		c.t.Fatal(err)
	}
	in, err := plugins.ReadInput(data)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := plugins.Replay(c.t.Context(), wasm, in)
	if err != nil {
		c.t.Fatal(err)
	}
	told := r.At + " " + r.Fault.Detail
	if !r.Same || !regexp.MustCompile(place).MatchString(told) {
		c.t.Errorf("%s, want %s; the same: %v", told, place, r.Same)
	}
}
