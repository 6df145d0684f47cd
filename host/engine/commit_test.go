package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// slowly reserves a prompt and begins to send it at a rate that leaves time for a commit. It
// returns when the writer is there; the channel has the send's error at its end.
func slowly(ctx context.Context, w *world, ask generation.Request) <-chan error {
	w.t.Helper()
	reserved, err := w.decode.PrepareReceive(w.t.Context(), ask, -1)
	if err != nil {
		w.t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := w.prefill.RemoteSend(ctx, ask, generation.Send{End: reserved.End,
			Metadata: reserved.Metadata})
		sent <- err
	}()
	for { // Each look is a turn of the loop; the test's own time limit bounds it.
		stats, _, err := w.decode.Stats(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if stats.States[scheduler.Receiving] == 1 {
			return sent
		}
	}
}

// TestScenario73CommitWaits: a commit waits for a writer that is still there, keeps what it brings
// and nothing else.
func TestScenario73CommitWaits(t *testing.T) {
	o := small()
	o.rate = 6000
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 4}
	sent := slowly(t.Context(), w, ask)
	tokens, err := w.decode.Commit(t.Context(), "a")
	if err != nil || tokens != 39 {
		t.Fatalf("%d tokens committed: %v", tokens, err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	w.rest()
	stats, _, _ := w.decode.Stats(t.Context())
	if stats.Evictable != 10 {
		t.Errorf("%d pages are cached, want 10", stats.Evictable)
	}
	s, err := w.decode.Generate(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t.Context(), s)
	if want := oracle(ask.Prompt, 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	after, _, _ := w.decode.Stats(t.Context())
	if found := after.MatchedTokens - stats.MatchedTokens; found != 39 {
		t.Errorf("%d of the committed tokens were found, want 39", found)
	}
	w.rest()
}

// TestCommitOfALostTransfer: nothing is kept that did not come; the reservation stays for another
// writer, or for a start that computes it.
func TestCommitOfALostTransfer(t *testing.T) {
	o := small()
	o.rate = 1500
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 4}
	ctx, leave := context.WithCancel(t.Context())
	sent := slowly(ctx, w, ask)
	committed := make(chan error, 1)
	go func() {
		_, err := w.decode.Commit(t.Context(), "a")
		committed <- err
	}()
	for waits := false; !waits; {
		var err error
		waits, err = call(t.Context(), w.decode, func() (bool, error) {
			return w.decode.labels["a"].reservation.commit != nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.decode.Commit(t.Context(), "a"); code(err) != generation.CodeIDInUse {
		t.Errorf("a second commit: %v", err)
	}
	if _, err := w.decode.StartGenerate(t.Context(), ask, 39); code(err) != generation.CodeIDInUse {
		t.Errorf("a start beside it: %v", err)
	}
	leave()
	if err := <-sent; err == nil {
		t.Fatal("the send was not given up")
	}
	if err := <-committed; code(err) != generation.CodeNotDelivered {
		t.Fatalf("commit: %v", err)
	}
	generates(t, w, ask)
	if n := w.overtaken.Load(); n != 0 {
		t.Errorf("%d transfers were overtaken: this one had failed", n)
	}
}

// TestOvertaken: a start that asks for nothing of a transfer computes the prompt while the writer
// is still there, and the watch hears that it overtook it: no other event tells of such an end.
func TestOvertaken(t *testing.T) {
	o := small()
	o.rate, o.recompute = 1500, true
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 4}
	sent := slowly(t.Context(), w, ask)
	s, err := w.decode.StartGenerate(t.Context(), ask, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t.Context(), s)
	if want := oracle(ask.Prompt, 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if err := <-sent; err == nil {
		t.Error("the send of what nobody wants was acknowledged")
	}
	w.rest()
	if n := w.overtaken.Load(); n != 1 {
		t.Errorf("%d transfers were overtaken", n)
	}
}

// generates wants the right tokens from what was delivered of ask, and nothing to be left.
func generates(t *testing.T, w *world, ask generation.Request) {
	t.Helper()
	s, err := w.decode.StartGenerate(t.Context(), ask, len(ask.Prompt)-1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(t.Context(), s)
	if want := oracle(ask.Prompt, 4); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	w.rest()
}

// TestACommitThatNobodyWaitsFor leaves the reservation as it is.
func TestACommitThatNobodyWaitsFor(t *testing.T) {
	o := small()
	o.rate = 6000
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 4}
	sent := slowly(t.Context(), w, ask)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := w.decode.Commit(ctx, "a"); code(err) != generation.CodeCancelled {
		t.Fatalf("commit: %v", err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	generates(t, w, ask)
}

// TestCommitOfAPinnedPrompt keeps what was delivered until a reset.
func TestCommitOfAPinnedPrompt(t *testing.T) {
	o := small()
	o.pages = 60
	w := newWorld(t, o)
	ask := generation.Request{ID: "a", Prompt: prompt(41, 1), MaxTokens: 4, PinPrompt: true}
	reserved, err := w.decode.PrepareReceive(t.Context(), ask, -1)
	if err != nil {
		t.Fatal(err)
	}
	plain := ask
	plain.PinPrompt = false
	if _, err := w.prefill.RemoteSend(t.Context(), plain, generation.Send{End: reserved.End,
		Metadata: reserved.Metadata}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.decode.Commit(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	stats, leaked, _ := w.decode.Stats(t.Context())
	if stats.Pinned != 10 || stats.Held != 0 || leaked != 0 {
		t.Errorf("%+v, %d leaked: want 10 pages pinned", stats, leaked)
	}
	if err := w.decode.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats, _, _ := w.decode.Stats(t.Context()); stats.Free != stats.Total {
		t.Errorf("%+v after a reset", stats)
	}
}
