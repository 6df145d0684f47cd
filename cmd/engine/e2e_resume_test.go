package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// TestScenario77DecodeDiesInTheMiddleOfAStream kills the decode process while its tokens are read:
// the stream goes on, computed by another instance from the prompt and what was handed on, and has
// the tokens of one engine alone, each once; with sampling, penalties and log-probabilities. With
// on_failure = "error" on the router the stream ends with a clear error instead.
func TestScenario77DecodeDiesInTheMiddleOfAStream(t *testing.T) {
	alone := serveNode(t, "[node]\nname = \"alone\"\n")
	body := fields{"prompt": "In the beginning", "max_tokens": 400, "seed": 7, "temperature": 1.1,
		"repetition_penalty": 1.2, "frequency_penalty": 0.1, "logprobs": 2, "ignore_eos": true,
		"return_token_ids": true}
	want := post(t, alone.api+"/v1/completions", body).completion(t).Choices[0]
	alone.stop()
	for _, onFailure := range []string{"recompute", "error"} {
		t.Run(onFailure, func(t *testing.T) {
			// A stream may be over before the signal is there.
			for try := 0; !decodeDies(t, onFailure, body, want); try++ {
				if try == 10 {
					t.Fatal("the kill always came too late")
				}
			}
		})
	}
}

// decodeDies says whether the decode process was killed before it was done, and checks what then
// must hold.
func decodeDies(t *testing.T, onFailure string, body fields, want openai.CompletionChoice) bool {
	p := serveNode(t, "[node]\nrole = \"prefill\"\nname = \"p0\"\n")
	d0 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d0\"\n")
	d1 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
	r := serveRouter(t, fmt.Sprintf("[transfer]\non_failure = %q\n", onFailure),
		[]*node{p}, []*node{d0, d1})
	defer func() {
		for _, n := range []*node{r, p, d1} {
			n.stop()
		}
	}()
	got, failure := killedStream(open(t, r.api+"/v1/completions", body), d0)
	if onFailure == "error" {
		if failure == "" && got.FinishReason != nil {
			return false
		}
		if failure != "kv_transfer_failed" || got.FinishReason != nil {
			t.Errorf("failure %q, finish %v", failure, got.FinishReason)
		}
		return true
	}
	if failure != "" || !slices.Equal(got.TokenIDs, want.TokenIDs) || got.Text != want.Text ||
		got.FinishReason == nil || *got.FinishReason != *want.FinishReason {
		t.Errorf("%q: %d tokens %v\nwant %d tokens %v", failure, len(got.TokenIDs), got.TokenIDs,
			len(want.TokenIDs), want.TokenIDs)
	}
	n := d1.metric("engine_requests_finished_total", `reason="length"`)
	if n == 0 {
		return false
	}
	if n != 1 {
		t.Errorf("the other instance finished %v requests", n)
	}
	rest(t, p, d1)
	eventually(t, patience, func() error {
		s, err := scrape(r.api)
		if n := s.sum("engine_router_instance_inflight"); err == nil && n != 0 {
			err = fmt.Errorf("the router counts %v in flight", n)
		}
		if up := s.sum("engine_router_instance_up"); err == nil && up != 2 {
			err = fmt.Errorf("%v instances are up, one of three is dead", up)
		}
		return err
	})
	return true
}

// killedStream reads a stream to its end and kills the process that computes it at its first token.
func killedStream(l *live, decode *node) (got openai.CompletionChoice, failure string) {
	for killed := false; ; {
		var event struct {
			openai.CompletionResponse
			Error *struct{ Code string }
		}
		if !l.next(&event) {
			return got, failure
		}
		if event.Error != nil {
			failure = event.Error.Code
			continue
		}
		for _, c := range event.Choices {
			got.Text += c.Text
			got.TokenIDs = append(got.TokenIDs, c.TokenIDs...)
			if c.FinishReason != nil {
				got.FinishReason = c.FinishReason
			}
		}
		if len(got.TokenIDs) > 0 && !killed {
			killed = true
			decode.kill()
		}
	}
}
