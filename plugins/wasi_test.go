package plugins

import (
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
)

// TestWASI runs a guest that tries what is offered of WASI and returns an error for each thing that
// is not as it must be.
func TestWASI(t *testing.T) {
	b := newBench(t)
	b.use("wasi", guestFile(t, "wasi"))
	for range 3 {
		b.mock.view.Header.NowNS += int64(time.Millisecond)
		if _, err := b.decide(1); err != nil {
			t.Fatal(err)
		}
	}
	if log := b.log.String(); !strings.Contains(log, "level=WARN") ||
		!strings.Contains(log, `line="word ends"`) {
		t.Errorf("the log lacks the guest's line:\n%s", log)
	}
	b.mock.view.Header.Flags |= abi.FlagDraining
	_, err := b.decide(1)
	f := asFault(t, err, abi.FaultExit)
	if !strings.Contains(f.Detail, "exited with 3: word ends") {
		t.Errorf("detail: %s", f.Detail)
	}
}

// TestRandomFollowsFromTheSettings compares the streams of two copies.
func TestRandomFollowsFromTheSettings(t *testing.T) {
	draw := func(settings string) [8]byte {
		b := newBench(t)
		spec := Spec{Name: "wasi", Wasm: guestFile(t, "wasi"), Config: []byte(settings)}
		if _, err := b.Load(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Activate("wasi"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.decide(1); err != nil {
			t.Fatal(err)
		}
		word, _ := b.order.current.memory.Read(408, 8)
		return [8]byte(word)
	}
	one, again, other := draw("{}"), draw("{}"), draw(`{"x":1}`)
	if one != again || one == other {
		t.Errorf("%x, again %x, other settings %x", one, again, other)
	}
}
