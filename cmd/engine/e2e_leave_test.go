package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestLeavingIsSaid ends an instance, and a router in front of one, under load: every client has
// its whole answer, or is told that the instance is leaving. Nobody's connection just ends.
func TestLeavingIsSaid(t *testing.T) {
	const clients = 24
	engine := func(t *testing.T) (front, busy *node) {
		n := serveNode(t, "version = 1\n[scheduler]\nmax_num_seqs = 1\n")
		return n, n
	}
	router := func(t *testing.T) (front, busy *node) {
		c := startCluster(t, clusterOptions{decode: "[scheduler]\nmax_num_seqs = 1\n"})
		return c.router, c.decode
	}
	for name, start := range map[string]func(*testing.T) (front, busy *node){
		"engine": engine, "router": router,
	} {
		t.Run(name, func(t *testing.T) {
			front, busy := start(t)
			var answers []<-chan reply
			for i := range clients {
				answers = append(answers, background(t.Context(), t, front.api+"/v1/completions",
					fields{"prompt": fmt.Sprint("And ", i), "max_tokens": 490,
						"ignore_eos": true, "stream": i%2 == 0}))
			}
			// A server that closes may close under a request that it has not read: HTTP leaves such
			// a client to try again. All of these were read.
			eventually(t, patience, func() error {
				n := busy.metric("engine_requests") + busy.metric("engine_requests_finished_total")
				if n < clients {
					return fmt.Errorf("%v of %d have come", n, clients)
				}
				return nil
			})
			front.stop()
			told := 0
			for i, answer := range answers {
				r := <-answer
				switch {
				case strings.Contains(r.body, `"code":"draining"`):
					told++
					if r.status != 503 && !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
						t.Errorf("client %d: %d %s", i, r.status, r.body)
					}
				case r.status != 200 || !strings.Contains(r.body, `"finish_reason":"length"`):
					t.Errorf("client %d: %d %s", i, r.status, r.body)
				}
			}
			if told == 0 {
				t.Error("nobody was in the middle")
			}
		})
	}
}
