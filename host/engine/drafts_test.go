package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// fakeDraft runs beside a fake model over the same tokens and makes the same entries, in pages of
// its own. Each run compares what its window shows of every sequence with what the main model has
// there: a mistake in its paging, copying or transfer is another entry.
type fakeDraft struct {
	*fakeModel
	t             *testing.T
	main          *fakeModel
	window, sinks int
	compared      int
}

// Run implements Runner. The main model has run by then.
func (d *fakeDraft) Run(b *batch.Batch) ([][]float32, error) {
	rows, err := d.fakeModel.Run(b)
	if err != nil || len(rows) > 0 {
		return nil, errors.Join(err, fmt.Errorf("a draft has %d rows of logits", len(rows)))
	}
	for i := range b.Items {
		d.compare(&b.Items[i], &d.main.last[i])
	}
	return nil, nil
}

func (d *fakeDraft) compare(own, main *batch.Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.main.mu.Lock()
	defer d.main.mu.Unlock()
	last := own.Start + len(own.Tokens) - 1
	if own.Start != main.Start || last != main.Start+len(main.Tokens)-1 {
		d.t.Errorf("the draft computes [%d, %d], the main model [%d, %d)", own.Start, last,
			main.Start, main.Start+len(main.Tokens))
		return
	}
	seen := sight{d.window, d.sinks}
	for position := range last + 1 {
		if !seen.sees(own.Start, position) {
			continue
		}
		for layer := range fakeLayers {
			d.compared++
			if d.slots[layer][slotOf(own.Pages, position)] !=
				d.main.slots[layer][slotOf(main.Pages, position)] {
				d.t.Errorf("layer %d of position %d of %d is wrong in the draft", layer, position,
					last+1)
				return
			}
		}
	}
}

// beside are worlds with one draft or two.
func beside() map[string]worldOptions {
	like, sliding, both := small(), small(), small()
	like.drafts = []scheduler.Memory{{Pages: 40, PrefixPages: -1}}
	sliding.drafts = []scheduler.Memory{{Pages: 22, PrefixPages: -1, Window: 12, Sinks: 2}}
	both.drafts = []scheduler.Memory{{Pages: 30, PrefixPages: 5},
		{Pages: 40, PrefixPages: -1, Window: 9}}
	return map[string]worldOptions{"like the main model": like, "with a window": sliding,
		"two": both}
}

// TestScenario19And22 hands prompts over with drafts beside the main model: its tokens are the same
// as without, and the drafts' keys and values are delivered too, as far as their windows see.
func TestScenario19And22(t *testing.T) {
	for name, o := range beside() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o)
			r := rand.New(rand.NewPCG(5, 5))
			common := prompt(50, 3)
			for n := range 25 {
				tokens := slices.Concat(common[:r.IntN(50)], prompt(1+r.IntN(15), uint64(n)))
				ask := generation.Request{ID: fmt.Sprint("id", n), Prompt: tokens, MaxTokens: 9}
				got, err := w.handOver(t.Context(), ask)
				if want := oracle(tokens, 9); err != nil || !slices.Equal(got, want) {
					t.Fatalf("handed over, %d tokens: %v %v, want %v", len(tokens), got, err, want)
				}
			}
			w.rest()
			for _, d := range slices.Concat(w.drafts[0], w.drafts[1]) {
				if d.compared == 0 {
					t.Error("a draft was never compared")
				}
			}
		})
	}
}

// TestRandomLivesBesideDrafts is TestRandomLives with drafts.
func TestRandomLivesBesideDrafts(t *testing.T) {
	for name, o := range beside() {
		t.Run(name, func(t *testing.T) { randomLives(t, o) })
	}
}

// TestOneGroupLost: a hand-off that loses the keys and values of one model has failed as a whole.
// Both ends give back the pages of every model, and what is generated is right.
func TestOneGroupLost(t *testing.T) {
	for _, recompute := range []bool{true, false} {
		t.Run(fmt.Sprint("recompute ", recompute), func(t *testing.T) {
			o := beside()["like the main model"]
			o.recompute = recompute
			w := newWorld(t, o)
			ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 5}
			reserved, err := w.decode.PrepareReceive(t.Context(), ask, -1)
			if err != nil {
				t.Fatal(err)
			}
			w.drafts[0][0].mute = errors.New("the draft's memory is gone")
			_, err = w.prefill.RemoteSend(t.Context(), ask, generation.Send{
				End: reserved.End, Metadata: reserved.Metadata})
			if code(err) == "" || !strings.Contains(err.Error(), "the draft's memory is gone") {
				t.Fatalf("remote send: %v", err)
			}
			const told = "a transfer of keys and values failed"
			if got := w.log.lines(told, "id=a", "direction=send", "memory is gone"); len(got) != 1 {
				t.Errorf("the sender's log: %q", got)
			}
			s, err := w.decode.StartGenerate(t.Context(), ask, reserved.End)
			if !recompute {
				if code(err) != generation.CodeTransferFailed && code(err) !=
					generation.CodeNotDelivered {
					t.Fatalf("start: %v", err)
				}
				if err := w.decode.Release(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				w.rest()
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t.Context(), s)
			if want := oracle(ask.Prompt, 5); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v %v, want %v", got, err, want)
			}
			if got := w.log.lines(told, "id=a", "direction=receive"); len(got) != 1 {
				t.Errorf("the receiver's log: %q", got)
			}
			w.rest()
		})
	}
}

// TestScenario21: a sender of one model is given the slots of two. It refuses, and both live on.
func TestScenario21(t *testing.T) {
	o := beside()["like the main model"]
	o.alone = true
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 5}
	_, err := w.handOver(t.Context(), ask)
	if code(err) != generation.CodeInvalidMetadata || !strings.Contains(err.Error(), "2 lists") {
		t.Fatalf("%v", err)
	}
	for _, e := range []*Engine{w.prefill, w.decode} {
		if err := e.Release(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		s, err := e.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(t.Context(), s)
		if want := oracle(ask.Prompt, 5); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	w.rest()
}

// TestADraftThatFails fails the step, and nothing of it counts in either model.
func TestADraftThatFails(t *testing.T) {
	w := newWorld(t, beside()["two"])
	ask := generation.Request{Prompt: prompt(30, 1), MaxTokens: 3}
	for n := range 3 {
		_, err := call(t.Context(), w.decode, func() (int, error) {
			w.drafts[1][n%2].fail = errors.New("device lost its mind")
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.decode.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context(), s); code(err) != generation.CodeInternal {
			t.Fatalf("request on a failed step: %v", err)
		}
		s, err = w.decode.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(t.Context(), s)
		if want := oracle(ask.Prompt, 3); err != nil || !slices.Equal(got, want) {
			t.Fatalf("request after a failed step: %v %v, want %v", got, err, want)
		}
	}
	w.rest()
}
