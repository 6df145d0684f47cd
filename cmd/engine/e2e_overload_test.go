package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestOverloadIsSaid: who finds the queue full hears 429, who waited too long 503, both when to
// come back; who is served is served to the end. Directly, and through a router.
func TestOverloadIsSaid(t *testing.T) {
	const limits = "[scheduler]\nmax_num_seqs = 1\nmax_queue = 3\nqueue_timeout = \"150ms\"\n"
	one := serveNode(t, "[node]\nname = \"one\"\n"+limits)
	p := serveNode(t, "[node]\nrole = \"prefill\"\nname = \"p0\"\n")
	d := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d0\"\n"+limits)
	r := serveRouter(t, "", []*node{p}, []*node{d})
	for name, front := range map[string]*node{"engine": one, "router": r} {
		t.Run(name, func(t *testing.T) {
			var answers []<-chan reply
			for i := range 12 {
				answers = append(answers, background(t.Context(), t, front.api+"/v1/completions",
					fields{"prompt": fmt.Sprint("And ", i), "max_tokens": 200, "ignore_eos": true}))
			}
			count := map[string]int{}
			for _, answer := range answers {
				a := <-answer
				if a.status == 200 {
					count["served"]++
					if !strings.Contains(a.body, `"length"`) {
						t.Errorf("%s", a.body)
					}
					continue
				}
				code, _ := a.failure(t)
				count[code]++
				after, err := strconv.Atoi(a.header.Get("Retry-After"))
				if err != nil || after < 1 || after > 60 {
					t.Errorf("%d %s: Retry-After %q", a.status, code, a.header["Retry-After"])
				}
			}
			t.Log(count)
			if count["served"] == 0 || count["queue_full"] == 0 ||
				count["served"]+count["queue_full"]+count["queue_timeout"] != len(answers) {
				t.Errorf("%v", count)
			}
		})
	}
	rest(t, one, p, d)
}
