package plugintest

import (
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/testdata"
)

// Host is an engine's side of the ABI, as RunHost tries it. It keeps room for HostSlots slots and
// HostDecisions decisions, gives init fuel for seconds at most, and offers what abi.CapsOffered
// says.
type Host interface {
	// Load brings a module in and makes it decide from the next step on. An error means that what
	// decided before goes on.
	Load(t *testing.T, name string, wasm []byte) error
	// Decide decides one step and judges the answer. An error means that the host's own policy
	// decides it.
	Decide(v *abi.View) ([]abi.Decision, error)
	// Class is the fault class that an error of the two stands for, "" for none.
	Class(err error) abi.FaultClass
}

// The room that a Host has.
const (
	HostSlots     = 200
	HostDecisions = maxSeqs
)

// Guest is a module of the conformance kit and what must become of it.
type Guest struct {
	Name  string
	Class abi.FaultClass // "" is a sound one
	Load  bool           // the fault is at load; otherwise in a step
}

// Guests lists the kit: every way to go wrong that the ABI names, and three modules that are sound.
func Guests() []Guest {
	var all []Guest
	add := func(load bool, class abi.FaultClass, names ...string) {
		for _, name := range names {
			all = append(all, Guest{name, class, load})
		}
	}
	add(true, abi.FaultLoadLint, "imported_memory", "large_memory")
	add(true, abi.FaultLoadLink, "missing_export", "wrong_signature", "memory_as_function",
		"wrong_version", "foreign_import", "import_type")
	add(true, abi.FaultLoadInit, "newer_host", "requires_swap", "descriptor_outside",
		"no_descriptor", "region_refused", "region_outside", "region_wraps", "region_unaligned",
		"region_overlaps", "init_error", "init_loop", "start_loop", "start_trap")
	add(false, abi.FaultTrap, "trap", "divides_by_zero", "reads_outside", "log_outside", "aborts")
	add(false, abi.FaultFuel, "loop", "recursion", "branching", "fills", "memory_grab", "log_loop")
	add(false, abi.FaultReturnedError, "returns_error", "bad_last_error", "endless_last_error")
	add(false, abi.FaultBadOutput, "oversized_answer", "huge_answer", "garbage", "unknown_slot",
		"repeated_slot", "wrong_id", "zero_tokens", "preempts")
	add(false, "", "quiet", "over_budget", "waiting_only")
	return all
}

// RunHost tries a host: each misbehaving guest must end in its fault, at load or within some steps,
// and whatever came before, the next step is served and a sound module can be loaded and decides.
// Each guest meets a host of its own.
func RunHost(t *testing.T, open func(t *testing.T) Host) {
	for _, g := range Guests() {
		t.Run(g.Name, func(t *testing.T) { meet(t, open(t), g) })
	}
}

// hostSteps is within how many steps a guest must have gone wrong.
const hostSteps = 20

func meet(t *testing.T, h Host, g Guest) {
	wasm, ok := testdata.Guest(g.Name)
	if !ok {
		t.Fatalf("the kit has no guest %q", g.Name)
	}
	table := NewTable(1, HostSlots)
	table.View.Header.NowNS = 3_600_000_000_000 // The guests are quiet in an engine's first second.
	want := func(err error) {
		t.Helper()
		if err == nil || h.Class(err) != g.Class {
			t.Fatalf("%v is of class %q, want %q", err, h.Class(err), g.Class)
		}
	}
	err := h.Load(t, g.Name, wasm)
	switch {
	case g.Load:
		want(err)
	case err != nil:
		t.Fatalf("it is refused: %v", err)
	default:
		err = fault(h, table)
		if g.Class != "" {
			want(err)
		} else if err != nil {
			t.Fatalf("it faults: %v", err)
		}
	}
	sound(t, h, table)
}

// fault runs steps until one faults.
func fault(h Host, table *Table) error {
	for range hostSteps {
		if _, err := h.Decide(table.Next(nil)); err != nil {
			return err
		}
	}
	return nil
}

// sound wants the host to serve a step, and a good module to decide after all.
func sound(t *testing.T, h Host, table *Table) {
	t.Helper()
	_, _ = h.Decide(table.Next(nil)) // By whomever: it returns.
	wasm, _ := testdata.Guest("waiting_only")
	if err := h.Load(t, "sound", wasm); err != nil {
		t.Fatalf("afterwards a sound module is refused: %v", err)
	}
	given := 0
	for range hostSteps { // A host shows a new module the whole table by itself.
		out, err := h.Decide(table.Next(nil))
		if err != nil {
			t.Fatalf("afterwards a sound module fails: %v", err)
		}
		given += len(out)
	}
	if given == 0 {
		t.Fatal("afterwards a sound module decides nothing")
	}
}
