package authortools

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/builtin"
)

// firstFew is a native policy that runs the first slots.
type firstFew struct{}

func (firstFew) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	for slot := range min(len(v.Records), 8) {
		out = append(out, abi.Decision{Slot: uint32(slot), Tokens: 1})
	}
	return out, nil
}

func TestMeasure(t *testing.T) {
	wasm, _ := builtin.Module("fcfs")
	m, err := Measure(t.Context(), wasm, MeasureOptions{Native: firstFew{}, Each: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Rows {
		if r.P50 <= 0 || r.P99 < r.P50 || r.Fuel50 <= 0 || r.FuelMost > r.Limit || r.Native <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if len(m.Rows) < 4 || m.Memory < 1<<16 || m.Compile <= 0 || m.Instantiate <= 0 {
		t.Errorf("%+v", m)
	}
}

func TestInspect(t *testing.T) {
	wasm, _ := builtin.Module("sjf-aging")
	facts, err := Inspect(t.Context(), wasm, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range facts {
		text.WriteString(f.Name + ": " + f.Text + "\n")
	}
	for _, want := range []string{"name: sjf-aging\n", "export: pol_decide (func (i32) i32)",
		"selects sets_chunks", "granted: 0 (chunk_lengths)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if _, err := Inspect(t.Context(), []byte("no"), nil); err == nil {
		t.Error("two bytes are a module")
	}
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "policy.c")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(source, "a")
	ctx, cancel := context.WithCancel(t.Context())
	ticks, calls := make(chan time.Time), make(chan bool, 8)
	done := make(chan error, 1)
	go func() { done <- Watch(ctx, dir, ticks, func() { calls <- true }) }()
	<-calls
	ticks <- time.Time{}
	write(filepath.Join(dir, "mine.wasm"), "module") // What a build writes.
	ticks <- time.Time{}
	ticks <- time.Time{} // It has looked since.
	if len(calls) > 0 {
		t.Error("what a build writes makes it build again")
	}
	write(source, "other")
	ticks <- time.Time{} // It may have looked before the writing, at the one before.
	<-calls
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
