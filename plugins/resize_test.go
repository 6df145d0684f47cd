package plugins

import (
	"errors"
	"strings"
	"testing"
)

// TestResize gives the active module a longer table while it decides. Others must be loaded again
// before they may.
func TestResize(t *testing.T) {
	b := newBench(t)
	b.use("quiet", guestFile(t, "quiet"))
	b.use("over_budget", guestFile(t, "over_budget"))
	slots, decisions := b.loader.slots, b.loader.decisions
	if err := b.Resize(t.Context(), slots/2, decisions); err != nil || b.loader.slots != slots {
		t.Errorf("smaller: %v, %d slots", err, b.loader.slots)
	}
	b.mock.fill(slots + 10)
	if _, err := b.Decide(&b.mock.view, nil); !errors.Is(err, ErrTable) {
		t.Errorf("too long a table: %v", err)
	}
	if err := b.Resize(t.Context(), slots+10, decisions); err != nil {
		t.Fatal(err)
	}
	b.mock.fill(slots + 10)
	if out, err := b.Decide(&b.mock.view, nil); err != nil || len(out) == 0 {
		t.Errorf("after the resize: %d decisions, %v", len(out), err)
	}
	if s, _ := b.Active(); s.Name != "over_budget" {
		t.Errorf("%+v is active", s)
	}
	for _, change := range []func() (Swap, error){
		b.Rollback, func() (Swap, error) { return b.Activate("quiet") },
	} {
		if _, err := change(); err == nil || !strings.Contains(err.Error(), "load it again") {
			t.Errorf("a module with a short table: %v", err)
		}
	}
	b.use("quiet", guestFile(t, "quiet"))
	if _, err := b.Decide(&b.mock.view, nil); err != nil {
		t.Error(err)
	}
}
