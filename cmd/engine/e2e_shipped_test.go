package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/plugins/builtin"
)

// TestEveryShippedPolicyServes swaps through all shipped policies under an instance that serves a
// real model: the tokens are the same, and each decides every step itself.
func TestEveryShippedPolicyServes(t *testing.T) {
	n := serveNode(t, "")
	golden := embeddedGolden().cases(t)
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			policy := "builtin:" + name
			if r := n.activate(t, policy); r.code != 0 {
				t.Fatal(r)
			}
			before := n.metric("engine_policy_fallback_steps_total")
			var wait sync.WaitGroup
			for i, g := range golden[:min(3, len(golden))] {
				wait.Go(func() {
					body, err := io.ReadAll(greedy.with(fields{"prompt": g.PromptIDs,
						"return_token_ids": true}).reader(t))
					if err != nil {
						t.Fatal(err)
					}
					asked := knock{"POST", n.api + "/v1/completions", string(body)}
					r := visit(t, http.DefaultClient, asked, "Content-Type: application/json",
						fmt.Sprint("X-Priority: ", i), fmt.Sprint("X-Tenant: tenant-", i%2),
						"X-Deadline-Ms: 60000")
					got := reply{r.status, r.header, r.body}.completion(t)
					if !slices.Equal(got.Choices[0].TokenIDs, g.GreedyIDs) {
						t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, g.GreedyIDs)
					}
				})
			}
			wait.Wait()
			if after := n.metric("engine_policy_fallback_steps_total"); after != before {
				t.Errorf("%v steps were decided by the fallback\n%s", after-before, n.err.String())
			}
		})
	}
	n.stop()
}
