package pol

import (
	"testing"

	"github.com/kvrelay/engine/abi"
)

// TestPages counts as the tests of the other SDKs do. That the host counts alike, a test of
// examples/plugins shows.
func TestPages(t *testing.T) {
	h := abi.Header{PageTokens: 16, FreePages: 10, NRunning: 2, ReservePages: 3}
	p := PagesOf(&h)
	waiting := &abi.Record{
		State: abi.StateLive, PromptTokens: 100, CachedTokens: 24, RemainingPrefill: 76,
		PagesNeeded: 6,
	}
	for tokens, want := range map[uint32]uint32{8: 1, 9: 2, 76: 6} {
		if got := p.Needed(waiting, tokens); got != want {
			t.Errorf("%d tokens of a waiting prompt need %d pages, want %d", tokens, got, want)
		}
	}
	if !p.Take(waiting, 76) || p.Free != 4 {
		t.Errorf("a prompt that just fits: %+v", p)
	}
	if p.Take(waiting, 8) || p.Free != 4 {
		t.Errorf("the reserve does not stay free: %+v", p)
	}
	running := &abi.Record{
		State: abi.StateLive | abi.StateRunning, PromptTokens: 60, Generated: 4,
		RemainingPrefill: 34, PagesNeeded: 2,
	}
	if p.Needed(running, 2) != 0 || p.Needed(running, 3) != 1 {
		t.Error("a running prompt does not fill its own page first")
	}
	if p.Take(running, 34) || !p.Take(running, 18) || p.Free != 3 {
		t.Errorf("one page for each that runs does not stay free: %+v", p)
	}
	if !p.Take(running, 2) || p.Free != 3 {
		t.Errorf("what needs no page does not fit: %+v", p)
	}
	h.NRunning, h.FreePages = 0, 7
	if p = PagesOf(&h); !p.Take(waiting, 76) {
		t.Error("the reserve is kept from the only one who could ever need it")
	}
}
