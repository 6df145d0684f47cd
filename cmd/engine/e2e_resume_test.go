package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
			p := serveNode(t, "[node]\nrole = \"prefill\"\nname = \"p0\"\n")
			d0 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d0\"\n")
			d1 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
			r := serveRouter(t, fmt.Sprintf("[transfer]\non_failure = %q\n", onFailure),
				[]*node{p}, []*node{d0, d1})
			l := open(t, r.api+"/v1/completions", body)
			var got openai.CompletionChoice
			var failure string
			for killed := false; ; {
				var event struct {
					openai.CompletionResponse
					Error *struct{ Code string }
				}
				if !l.next(&event) {
					break
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
				if len(got.TokenIDs) > 20 && !killed {
					killed = true
					d0.kill()
				}
			}
			if onFailure == "error" {
				if failure != "kv_transfer_failed" || got.FinishReason != nil {
					t.Errorf("failure %q, finish %v", failure, got.FinishReason)
				}
				return
			}
			if failure != "" || !slices.Equal(got.TokenIDs, want.TokenIDs) ||
				got.Text != want.Text || got.FinishReason == nil ||
				*got.FinishReason != *want.FinishReason {
				t.Errorf("%q: %d tokens %v\nwant %d tokens %v", failure, len(got.TokenIDs),
					got.TokenIDs, len(want.TokenIDs), want.TokenIDs)
			}
			if n := d1.metric("engine_requests_finished_total", `reason="length"`); n != 1 {
				t.Errorf("the other instance finished %v requests: the kill came too late", n)
			}
			rest(t, p, d1)
			eventually(t, 5*time.Second, func() error {
				s, err := scrape(r.api)
				if n := s.sum("engine_router_instance_inflight"); err == nil && n != 0 {
					err = fmt.Errorf("the router counts %v in flight", n)
				}
				if up := s.sum("engine_router_instance_up"); err == nil && up != 2 {
					err = fmt.Errorf("%v instances are up, one of three is dead", up)
				}
				return err
			})
		})
	}
}
