package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/plugins/lint"
)

// text is a report as the command prints it.
func (r Report) text() string {
	var b strings.Builder
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%-11s %s\n", l.Name, l.Text)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "! %s\n", w)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "error[%s]: %s %s %q\n", p.Code, p.Text, p.Where, p.Help)
	}
	return b.String()
}

func TestCheckShipped(t *testing.T) {
	for _, name := range []string{"fcfs", "sjf-aging"} {
		r := Check(t.Context(), shipped(t, name), nil, Limits{})
		t.Logf("%s\n%s", name, r.text())
		if !r.OK() || len(r.Warnings) > 0 || len(r.Lines) != 7 {
			t.Errorf("%s: %s", name, r.text())
		}
	}
}

// TestCheckTells: every guest that no host loads is refused, and those that fault late are found by
// the clock near its end.
func TestCheckTells(t *testing.T) {
	limits := Limits{InitFuel: 5_000_000}
	for name, want := range map[string]string{
		"missing_export": codeMissingExport, "wrong_signature": codeExportType,
		"memory_as_function": codeExportType, "wrong_version": codeMissingExport,
		"foreign_import": codeUnknownImport, "import_type": codeImportType,
		"imported_memory": "P015", "newer_host": codeInit, "requires_swap": codeInit,
		"region_overlaps": codeInit, "init_error": codeInit, "init_loop": codeInit,
		"start_loop": codeInit, "start_trap": codeInit, "large_memory": "P018",
		"trap_at_once": codeFault, "trap": codeFault, "loop": codeFault, "branching": codeFault,
		"oversized_answer": codeFault, "garbage": codeAnswer, "unknown_slot": codeAnswer,
		"repeated_slot": codeAnswer, "wrong_id": codeAnswer, "preempts": codeAnswer,
		"zero_tokens": codeAnswer,
	} {
		r := Check(t.Context(), guestFile(t, name), nil, limits)
		if r.OK() || r.Problems[0].Code != want {
			t.Errorf("%s: want %s\n%s", name, want, r.text())
		}
	}
	r := Check(t.Context(), guestFile(t, "foreign_import"), nil, limits)
	if len(r.Problems) != 2 || len(r.Problems[0].Help) == 0 {
		t.Errorf("not both unknown imports: %s", r.text())
	}
	r = Check(t.Context(), guestFile(t, "quiet"), []byte("[]"), limits)
	if r.OK() || r.Problems[0].Code != codeConfig {
		t.Errorf("settings that are no object: %s", r.text())
	}
}

// TestCheckWarns: what can be loaded but will not bear a long queue.
func TestCheckWarns(t *testing.T) {
	r := Check(t.Context(), guestFile(t, "quiet"), nil, Limits{})
	if !r.OK() || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "queue of 10000") {
		t.Errorf("%s", r.text())
	}
}

// TestGuestsAreCurrent assembles every guest anew, where that is asked for and wat2wasm is there,
// and compares.
func TestGuestsAreCurrent(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join("testdata", "*.wat"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no guests: %v", err)
	}
	modules, _ := filepath.Glob(filepath.Join("testdata", "*.wasm"))
	if len(modules) != len(sources) {
		t.Errorf("%d sources and %d modules", len(sources), len(modules))
	}
	for _, source := range sources {
		same, err := assembled(t, source)
		if err != nil {
			t.Skipf("%v", err)
		}
		if !same {
			t.Errorf("%s: assemble it anew with wat2wasm of wabt 1.0.39", source)
		}
	}
	for _, c := range refusedGuests {
		if _, err := os.Stat(filepath.Join("testdata", c.name+".wat")); err != nil {
			t.Error(err)
		}
	}
}

// TestWhereAnImportIsCalled: an unknown import is named with the function that calls it, and the
// line where the module has line numbers.
func TestWhereAnImportIsCalled(t *testing.T) {
	wasm := guestFile(t, "lines/lines")
	m, _ := lint.Check(wasm, lint.Limits{})
	divide := -1
	for i := range m.Functions {
		if m.NameOf(uint32(len(m.Imports)+i)) == "divide" {
			divide = len(m.Imports) + i
		}
	}
	if divide < 0 {
		t.Fatal("there is no function divide")
	}
	if got := calledFrom(m, uint32(divide), true); got != "called from pol_decide (lines.c:54)" {
		t.Error(got)
	}
	got := calledFrom(m, uint32(divide), false)
	if !strings.HasPrefix(got, "called from pol_decide (byte 0x") {
		t.Error(got)
	}
	if got := calledFrom(m, 999, true); got != "" {
		t.Error(got)
	}
}
