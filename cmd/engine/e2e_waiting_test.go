package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tokenSteps reads from a debug log in which steps a request got its tokens.
func tokenSteps(t *testing.T, log, id string) []uint64 {
	t.Helper()
	var steps []uint64
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"id":"`+id+`"`) || !strings.Contains(line, "token sampled") {
			continue
		}
		var token struct {
			Step uint64 `json:"step"`
		}
		if err := json.Unmarshal([]byte(line), &token); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		steps = append(steps, token.Step)
	}
	return steps
}

// feed sends prompts without a pause until it is stopped, which tells how many were answered.
func feed(t *testing.T, url string) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	const feeders = 40
	var feeding sync.WaitGroup
	failed, fed := make([]error, feeders), make([]int, feeders)
	for i := range feeders {
		length := 60
		if i%4 == 0 {
			length = 200 // It asks for the whole budget, of which the stream has a token.
		}
		prompt := make([]int32, length)
		for k := range prompt {
			prompt[k] = int32(3 + (i*31+k*k)%1000)
		}
		feeding.Go(func() {
			for ctx.Err() == nil {
				_, err := streamIDs(ctx, url, fields{"prompt": prompt, "max_tokens": 1})
				if err != nil && ctx.Err() == nil {
					failed[i] = err
					return
				}
				fed[i]++
			}
		})
	}
	return func() (total int) {
		cancel()
		feeding.Wait()
		if err := errors.Join(failed...); err != nil {
			t.Error(err)
		}
		for _, times := range fed {
			total += times
		}
		return total
	}
}

// TestWaitingOnlyPolicyStallsNoStream lets a policy decide that lists only waiting requests, each
// with a chunk of the whole budget, while new prompts arrive all the time: a running stream gets a
// token in every single step.
func TestWaitingOnlyPolicyStallsNoStream(t *testing.T) {
	n := serveNode(t, fmt.Sprintf("[policy]\nactive = \"mine\"\n[policies.mine]\npath = %q\n"+
		"[scheduler]\ntoken_budget = 64\n[kv_cache]\nprefix_cache = false\n"+
		"[telemetry]\nlog_level = \"debug\"\n", moduleFile(t, "waiting_only")))
	url := n.api + "/v1/completions"
	stream := song(1).with(fields{"user": "stream"})
	want, err := streamIDs(t.Context(), url, song(1))
	if err != nil {
		t.Fatal(err)
	}
	stop := feed(t, url)
	got, err := streamIDs(t.Context(), url, stream)
	total := stop()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("beside the others: %v, want %v", got, want)
	}
	var steps []uint64
	eventually(t, patience, func() error {
		if steps = tokenSteps(t, n.err.String(), "stream"); len(steps) != 480 {
			return fmt.Errorf("%d tokens are in the log", len(steps))
		}
		return nil
	})
	for i := range steps[1:] {
		if steps[i+1] != steps[i]+1 {
			t.Errorf("after step %d the stream's next token came in step %d", steps[i], steps[i+1])
		}
	}
	if total < 100 {
		t.Error("too few prompts came to press the stream")
	}
	t.Logf("%d prompts were served beside %d tokens of the stream", total, len(steps))
	rest(t, n)
	// When no new prompt has come for a while, what it never lists is work left aside: a fault.
	if asked := n.metric("engine_policy_decide_seconds_count"); asked < 100 {
		t.Errorf("the policy was asked only %v times", asked)
	}
	n.stop()
}
