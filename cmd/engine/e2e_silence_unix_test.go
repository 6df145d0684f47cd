//go:build unix

package main

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestPrefillFallsSilentInTheMiddle stops the prefill process while its transfer is half done: its
// connections stay open and carry nothing. The client gets its completion in time all the same.
func TestPrefillFallsSilentInTheMiddle(t *testing.T) {
	c, p := slowCluster(t, "450KiB/s", "")
	want, size := longCase(t)
	answers := background(t.Context(), t, c.router.api+"/v1/completions",
		greedy.with(fields{"prompt": want.PromptIDs, "return_token_ids": true}))
	p.await(t, size/2)
	signal := func(s syscall.Signal) {
		if err := c.prefill.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	stopped := time.Now()
	got := within(t, answers, stopped).completion(t)
	if !slices.Equal(got.Choices[0].TokenIDs, want.GreedyIDs) {
		t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, want.GreedyIDs)
	}
	rest(t, c.decode)
	signal(syscall.SIGCONT) // What it still sends is refused; it lets go of everything too.
	c.rest(t)
	c.stop()
}
