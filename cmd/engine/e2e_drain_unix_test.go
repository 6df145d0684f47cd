//go:build unix

package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// busy starts so many long streams and waits until all of them have begun.
func busy(t *testing.T, api string, n int) []<-chan reply {
	t.Helper()
	var answers []<-chan reply
	for i := range n {
		answers = append(answers, background(t.Context(), t, api+"/v1/completions", fields{
			"prompt": fmt.Sprint("And ", i), "max_tokens": 400, "ignore_eos": true,
			"stream": i%2 == 0}))
	}
	return answers
}

// TestSIGTERMFinishesWhatIsUnderWay: every stream ends as it would have, whoever comes later is
// told to come back, /ready says so, and the process ends well. For an engine, and for a router.
func TestSIGTERMFinishesWhatIsUnderWay(t *testing.T) {
	engine := func(t *testing.T) *node { return serveNode(t, "[node]\nname = \"one\"\n") }
	router := func(t *testing.T) *node { return startCluster(t, clusterOptions{}).router }
	for name, start := range map[string]func(*testing.T) *node{"engine": engine, "router": router} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			client := &http.Client{} // Connected before, as those are that a balancer keeps.
			if _, err := client.Get(n.api + "/live"); err != nil {
				t.Fatal(err)
			}
			answers := busy(t, n.api, 12)
			eventually(t, patience, func() error {
				s, err := scrape(n.api)
				taken := s.sum("engine_requests") + s.sum("engine_requests_finished_total") +
					s.sum("engine_router_decisions_total")
				if err == nil && taken < 12 {
					err = fmt.Errorf("%v requests were taken", taken)
				}
				return err
			})
			if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, patience, func() error {
				if r := get(t, n.api+"/ready"); r.status != http.StatusServiceUnavailable {
					return fmt.Errorf("/ready: %d", r.status)
				}
				return nil
			})
			r := post(t, n.api+"/v1/completions", fields{"prompt": "late", "max_tokens": 1})
			if code, _ := r.failure(t); code != "draining" || r.header.Get("Retry-After") == "" {
				t.Errorf("a late request: %d %s %v", r.status, r.body, r.header)
			}
			for i, answer := range answers {
				r := <-answer
				if r.status != 200 || !strings.Contains(r.body, `"finish_reason":"length"`) {
					t.Errorf("stream %d: %d %.300s", i, r.status, r.body)
				}
			}
			n.wait(0)
			if !strings.Contains(n.err.String(), `"lost":0`) {
				t.Errorf("the log does not say that nothing was lost:\n%s", n.err)
			}
		})
	}
}

// TestASecondSignalIsNow: nobody is waited for any longer, and clients are still told why.
func TestASecondSignalIsNow(t *testing.T) {
	n := serveNode(t, "[node]\nname = \"one\"\n[scheduler]\nmax_num_seqs = 1\n")
	answers := busy(t, n.api, 24)
	eventually(t, patience, func() error {
		if got := n.metric("engine_requests", `state="waiting"`); got < 6 {
			return fmt.Errorf("%v wait", got)
		}
		return nil
	})
	for range 2 {
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, func() error {
			if !strings.Contains(n.err.String(), `"msg":"draining`) {
				return fmt.Errorf("not draining yet:\n%s", n.err)
			}
			return nil
		})
	}
	told := 0
	for _, answer := range answers {
		if r := <-answer; strings.Contains(r.body, `"code":"draining"`) {
			told++
		}
	}
	if told == 0 {
		t.Error("nobody was told")
	}
	n.wait(0)
}

// TestDrainTimeoutBoundsTheWait: what is not through by then ends with the reason.
func TestDrainTimeoutBoundsTheWait(t *testing.T) {
	n := serveNode(t, "[node]\nname = \"one\"\n[scheduler]\nmax_num_seqs = 1\n"+
		"[shutdown]\ndrain_timeout = \"100ms\"\n")
	answers := busy(t, n.api, 60)
	eventually(t, patience, func() error {
		if got := n.metric("engine_requests", `state="waiting"`); got < 20 {
			return fmt.Errorf("%v wait", got)
		}
		return nil
	})
	begun := time.Now()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.wait(0)
	t.Logf("ended after %v", time.Since(begun))
	told := 0
	for _, answer := range answers {
		if r := <-answer; strings.Contains(r.body, `"code":"draining"`) {
			told++
		}
	}
	if told == 0 {
		t.Error("nobody was told")
	}
}

// TestAnInstanceIsDrainedByTheOperator: a decode instance behind a router is drained under load:
// its requests end, new ones go to the other one, and it takes requests again when asked to.
func TestAnInstanceIsDrainedByTheOperator(t *testing.T) {
	d0 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d0\"\n")
	d1 := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
	p := serveNode(t, "[node]\nrole = \"prefill\"\nname = \"p0\"\n")
	r := serveRouter(t, "[router]\nhealth_interval = \"100ms\"\n", []*node{p}, []*node{d0, d1})
	answers := busy(t, r.api, 8)
	eventually(t, patience, func() error {
		if got := d0.metric("engine_requests", `state="decoding"`); got == 0 {
			return fmt.Errorf("nothing runs")
		}
		return nil
	})
	if out := cli(t, "drain", "--admin", d0.admin); !strings.Contains(out, "drained in") {
		t.Errorf("%s", out)
	}
	for i, answer := range answers {
		if r := <-answer; r.status != 200 || !strings.Contains(r.body, `"length"`) {
			t.Errorf("stream %d: %d %.300s", i, r.status, r.body)
		}
	}
	before := d0.metric("engine_requests_finished_total")
	for range 4 {
		a := post(t, r.api+"/v1/completions", fields{"prompt": "x", "max_tokens": 1})
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if after := d0.metric("engine_requests_finished_total"); after != before {
		t.Errorf("a drained instance finished %v requests", after-before)
	}
	if out := cli(t, "drain", "--undo", "--admin", d0.admin); !strings.Contains(out, "again") {
		t.Errorf("%s", out)
	}
	eventually(t, patience, func() error {
		s, err := scrape(r.api)
		if up := s.sum("engine_router_instance_up"); err == nil && up != 3 {
			err = fmt.Errorf("%v instances are up", up)
		}
		return err
	})
	rest(t, d0, d1, p)
}
