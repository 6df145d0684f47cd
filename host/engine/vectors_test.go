package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/generation"
)

// TestWindowsAroundVectors: a window that begins or ends inside a part that is computed whole
// begins or ends where the part begins, in all calls alike.
func TestWindowsAroundVectors(t *testing.T) {
	w := newWorld(t, small())
	ask := generation.Request{ID: "a", Prompt: prompt(40, 1), MaxTokens: 5}
	want := oracle(ask.Prompt, 5)
	ask.Prompt, ask.Embeds, _ = withVectors(ask, 10, 14)
	ask.Prompt, ask.Embeds, _ = withVectors(ask, 28, 12) // To the prompt's end.
	for _, c := range []struct{ end, whole int }{{-1, 28}, {39, 28}, {29, 28}, {28, 28}, {24, 24},
		{23, 10}, {11, 10}, {-35, 5}} {
		reserved, err := w.decode.PrepareReceive(t.Context(), ask, c.end)
		if err != nil || reserved.End != c.whole {
			t.Fatalf("end %d became %d, want %d: %v", c.end, reserved.End, c.whole, err)
		}
		if reserved.Matched < reserved.End {
			_, err = w.prefill.RemoteSend(t.Context(), ask, generation.Send{
				Begin: reserved.Matched, End: c.end, Metadata: reserved.Metadata})
			if err != nil {
				t.Fatalf("end %d: %v", c.end, err)
			}
		}
		s, err := w.decode.StartGenerate(t.Context(), ask, c.end)
		if err != nil {
			t.Fatalf("begin %d: %v", c.end, err)
		}
		if got, err := read(t.Context(), s); err != nil || !slices.Equal(got, want) {
			t.Fatalf("end %d: %v %v, want %v", c.end, got, err, want)
		}
		if err := w.decode.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.rest()
}

// TestVectorsRefused: what is no part of a prompt for this model is refused before it is queued.
func TestVectorsRefused(t *testing.T) {
	w := newWorld(t, small())
	plain := generation.Request{ID: "a", Prompt: prompt(30, 1), MaxTokens: 5}
	with := func(change func(*generation.Request)) generation.Request {
		ask := plain
		ask.Prompt, ask.Embeds, _ = withVectors(ask, 5, 4)
		change(&ask)
		return ask
	}
	for name, c := range map[string]struct {
		ask   generation.Request
		words string
	}{
		"wide": {with(func(r *generation.Request) {
			r.Embeds[0].Values = append(r.Embeds[0].Values, 1)
		}), "hidden state has 1"},
		"behind the prompt": {with(func(r *generation.Request) { r.Embeds[0].Start = 27 }),
			"at position 27"},
		"twice": {with(func(r *generation.Request) {
			r.Embeds = append(r.Embeds, r.Embeds[0])
		}), "prompt_embeds 1"},
		"nothing": {with(func(r *generation.Request) { r.Embeds[0].Rows = 0 }), "0 vectors"},
		"a placeholder alone": {with(func(r *generation.Request) { r.Embeds = nil }),
			"prompt token 5 is -1"},
		"more than a step": {with(func(r *generation.Request) {
			r.Prompt, r.Embeds = prompt(30, 1), nil
			r.Prompt, r.Embeds, _ = withVectors(*r, 3, 17)
		}), "17 positions is computed at once, and a step has room for 16"},
		"output": {with(func(r *generation.Request) { r.Emitted = 22 }), "are no output"},
	} {
		_, err := w.decode.Generate(t.Context(), c.ask)
		if code(err) != generation.CodeInvalidValue || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = w.decode.PrepareReceive(t.Context(), c.ask, 3)
		if code(err) != generation.CodeInvalidValue {
			t.Errorf("%s, reserved: %v", name, err)
		}
	}
	_, err := call(t.Context(), w.decode, func() (int, error) {
		w.decode.vectors += maxVectors - 3
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := with(func(*generation.Request) {})
	if _, err := w.decode.Generate(t.Context(), ask); code(err) != generation.CodeQueueFull {
		t.Errorf("beside others that fill the room: %v", err)
	}
	_, err = call(t.Context(), w.decode, func() (int, error) {
		w.decode.vectors -= maxVectors - 3
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.rest()
}
