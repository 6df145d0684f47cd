package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/generation"
)

func small() worldOptions {
	return worldOptions{pages: 40, seqs: 4, budget: 16, context: 80, recompute: true}
}

func prompt(n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 7))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.IntN(fakeWords))
	}
	return tokens
}

func TestLocalAndHandedOverAgreeWithTheOracle(t *testing.T) {
	w := newWorld(t, small())
	for n := 1; n < 60; n += 3 {
		ask := generation.Request{ID: fmt.Sprint("id", n), Prompt: prompt(n, uint64(n)),
			MaxTokens: 9}
		want := oracle(ask.Prompt, 9)
		s, err := w.prefill.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(t.Context(), s); err != nil || !slices.Equal(got, want) {
			t.Fatalf("local, %d tokens: %v %v, want %v", n, got, err, want)
		}
		got, err := w.handOver(t.Context(), ask)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("handed over, %d tokens: %v %v, want %v", n, got, err, want)
		}
	}
	w.rest()
}

// TestRandomLives sends many requests at once through two small engines and cancels some of them at
// every stage. What is answered must be right, and nothing may be left.
func TestRandomLives(t *testing.T) {
	randomLives(t, small())
}

func randomLives(t *testing.T, o worldOptions) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, o)
	var wait sync.WaitGroup
	gate := make(chan struct{}, 12)
	for n := range 400 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		wait.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			w.life(n, r)
		})
	}
	wait.Wait()
	w.rest()
}

// life is one request, cancelled at a random stage or not at all.
func (w *world) life(n int, r *rand.Rand) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	common := prompt(40, uint64(r.IntN(3)))
	tokens := slices.Concat(common[:r.IntN(41)], prompt(1+r.IntN(20), uint64(n)+100))
	ask := generation.Request{ID: fmt.Sprint("id", n), Prompt: tokens, MaxTokens: 1 + r.IntN(12)}
	want := w.options.oracle(tokens, ask.MaxTokens)
	for at := r.IntN(20); at < len(tokens) && n%2 == 0; at += r.IntN(20) {
		ask.Prompt, ask.Embeds, at = withVectors(ask, at, min(1+r.IntN(9), len(tokens)-at))
	}
	if r.IntN(3) == 0 {
		stages := r.IntN(400)
		go func() {
			for range stages { // Some turns of the loop later, wherever the request is by then.
				_, _, _ = w.decode.Stats(ctx)
			}
			cancel()
		}()
	}
	var got []int32
	var err error
	if r.IntN(3) == 0 {
		var s generation.Stream
		if s, err = w.decode.Generate(ctx, ask); err == nil {
			got, err = read(ctx, s)
		}
	} else {
		got, err = w.handOver(ctx, ask)
		if err != nil { // As a router does when a client has gone.
			err = errors.Join(err, w.decode.Release(w.t.Context(), ask.ID))
		}
	}
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("request %d: %v", n, err)
	}
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || err == nil &&
		len(got) != len(want) {
		w.t.Errorf("request %d of %d tokens: %v, want %v (%v)", n, len(tokens), got, want, err)
	}
}

// withVectors gives tokens [at, at+rows) of a prompt as vectors, which the fake model reads as the
// same ones.
func withVectors(ask generation.Request, at, rows int) ([]int32, []generation.Embedding, int) {
	prompt := slices.Clone(ask.Prompt)
	e := generation.Embedding{Start: at, Rows: rows}
	for i, token := range prompt[at : at+rows] {
		e.Values = append(e.Values, float32(token))
		prompt[at+i] = generation.Placeholder
	}
	e.Digest = sha256.Sum256(fmt.Append(nil, e.Values))
	return prompt, append(ask.Embeds, e), e.End()
}

func TestStopKeepsThePages(t *testing.T) {
	w := newWorld(t, small())
	ask := generation.Request{Prompt: prompt(20, 1), MaxTokens: 40}
	s, err := w.decode.Generate(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.rest()
	stats, _, _ := w.decode.Stats(t.Context())
	if stats.Evictable < 5 {
		t.Fatalf("%d pages of the stopped prompt are cached, want at least 5", stats.Evictable)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, small())
	long := generation.Request{ID: "a", Prompt: prompt(80, 1)}
	ok := generation.Request{ID: "b", Prompt: prompt(10, 1), MaxTokens: 2}
	ctx := t.Context()
	for name, c := range map[string]struct {
		call func() error
		code generation.Code
	}{
		"empty prompt": {func() error {
			_, err := w.decode.Generate(ctx,
				generation.Request{})
			return err
		},
			generation.CodeInvalidValue},
		"too long": {func() error { _, err := w.decode.Generate(ctx, long); return err },
			generation.CodeContextLength},
		"unknown token": {func() error {
			_, err := w.decode.Generate(ctx, generation.Request{Prompt: []int32{1, fakeWords}})
			return err
		}, generation.CodeInvalidValue},
		"negative token to send": {func() error {
			ask := generation.Request{ID: "c", Prompt: []int32{1, -1, 2}}
			_, err := w.prefill.RemoteSend(ctx, ask, generation.Send{End: 2, Metadata: "x"})
			return err
		}, generation.CodeInvalidValue},
		"window": {func() error {
			_, err := w.prefill.RemoteSend(ctx, ok, generation.Send{Begin: 5, End: 5})
			return err
		}, generation.CodeInvalidWindow},
		"whole prompt": {func() error {
			_, err := w.prefill.RemoteSend(ctx, ok, generation.Send{Begin: 0, End: 10})
			return err
		}, generation.CodeInvalidWindow},
		"metadata": {func() error {
			_, err := w.prefill.RemoteSend(ctx, ok, generation.Send{End: 9, Metadata: "x"})
			return err
		}, generation.CodeInvalidMetadata},
		"prepare past the end": {func() error {
			_, err := w.decode.PrepareReceive(ctx, ok,
				10)
			return err
		},
			generation.CodeInvalidWindow},
		"unknown reservation": {func() error {
			_, err := w.decode.StartGenerate(ctx, ok,
				3)
			return err
		},
			generation.CodeReservationNotFound},
	} {
		var e *generation.Error
		if err := c.call(); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%s: %v, want code %s", name, err, c.code)
		}
	}
	w.rest()
}

// TestReservations goes through the ways that a reservation can end.
func TestReservations(t *testing.T) {
	w := newWorld(t, small())
	ctx := t.Context()
	ask := generation.Request{ID: "x", Prompt: prompt(30, 5), MaxTokens: 4}
	want := oracle(ask.Prompt, 4)
	if _, err := w.decode.PrepareReceive(ctx, ask, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.decode.PrepareReceive(ctx, ask, -1); code(err) != generation.CodeIDInUse {
		t.Fatalf("second reservation: %v", err)
	}
	// Nothing was sent: the decode engine computes all of it.
	s, err := w.decode.StartGenerate(ctx, ask, 29)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(ctx, s); err != nil || !slices.Equal(got, want) {
		t.Fatalf("recomputed: %v %v, want %v", got, err, want)
	}
	// Released: it can be neither written to nor started.
	reserved, err := w.decode.PrepareReceive(ctx, ask, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.decode.Release(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	if reserved.Matched == reserved.End {
		t.Fatal("the test needs something to send")
	}
	_, err = w.prefill.RemoteSend(ctx, ask, generation.Send{Begin: reserved.Matched,
		End:      reserved.End,
		Metadata: reserved.Metadata})
	if code(err) != generation.CodeReservationNotFound {
		t.Fatalf("send to a released reservation: %v", err)
	}
	if _, err := w.decode.StartGenerate(ctx, ask,
		29); code(err) != generation.CodeReservationNotFound {
		t.Fatalf("start of a released reservation: %v", err)
	}
	w.rest()
}

func code(err error) generation.Code {
	var e *generation.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestADeviceThatIsLost: the step's requests and all others end with the error that says so,
// nothing is held any more, and whatever comes is refused; the other instance goes on.
func TestADeviceThatIsLost(t *testing.T) {
	w := newWorld(t, small())
	ctx := t.Context()
	ask := generation.Request{ID: "r", Prompt: prompt(10, 1), MaxTokens: 3}
	reserved, err := w.decode.PrepareReceive(ctx, ask, -1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(ctx, w.decode, func() (int, error) {
		w.models[1].fail = fmt.Errorf("step: %w", errGone)
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	local := generation.Request{Prompt: prompt(10, 2), MaxTokens: 3}
	s, err := w.decode.Generate(ctx, local)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(ctx, s); code(err) != generation.CodeDeviceLost {
		t.Fatalf("request on the step: %v", err)
	}
	if code(w.decode.Lost()) != generation.CodeDeviceLost || w.prefill.Lost() != nil {
		t.Errorf("lost: %v, the other: %v", w.decode.Lost(), w.prefill.Lost())
	}
	_, generate := w.decode.Generate(ctx, local)
	_, start := w.decode.StartGenerate(ctx, ask, reserved.End)
	ask.ID = "s"
	_, prepare := w.decode.PrepareReceive(ctx, ask, -1)
	_, send := w.decode.RemoteSend(ctx, ask, generation.Send{End: reserved.End})
	for name, err := range map[string]error{"generate": generate, "start": start,
		"prepare": prepare, "send": send} {
		if code(err) != generation.CodeDeviceLost {
			t.Errorf("%s after the loss: %v", name, err)
		}
	}
	_, err = w.prefill.RemoteSend(ctx, ask, generation.Send{Begin: reserved.Matched,
		End: reserved.End, Metadata: reserved.Metadata})
	if err == nil {
		t.Error("keys and values were delivered to a device that is gone")
	}
	if s, err = w.prefill.Generate(ctx, local); err != nil {
		t.Fatal(err)
	}
	if got, err := read(ctx, s); err != nil || !slices.Equal(got, oracle(local.Prompt, 3)) {
		t.Errorf("the other instance: %v %v", got, err)
	}
	w.rest()
}

// TestADeviceThatFails fails one step: its requests end with an error, the others go on.
func TestADeviceThatFails(t *testing.T) {
	w := newWorld(t, small())
	ask := generation.Request{Prompt: prompt(10, 1), MaxTokens: 3}
	_, err := call(t.Context(), w.decode, func() (int, error) {
		w.models[1].fail = errors.New("device lost its mind")
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
	if got, err := read(t.Context(), s); err != nil || !slices.Equal(got, oracle(ask.Prompt, 3)) {
		t.Fatalf("request after a failed step: %v %v", got, err)
	}
	w.rest()
}
