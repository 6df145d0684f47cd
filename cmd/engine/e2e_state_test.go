package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/metrics"
)

// stateOf is one look by `engine top`.
func stateOf(t *testing.T, address string) admin.State {
	t.Helper()
	got := invoke(t, "", "top", "--once", "--json", "--admin", address)
	var s admin.State
	if err := json.Unmarshal([]byte(got.out), &s); err != nil || got.code != 0 {
		t.Fatalf("engine top: exit %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
	return s
}

// TestTopSeesTheQueue: requests that run and wait are listed with whose they are; at rest there are
// none.
func TestTopSeesTheQueue(t *testing.T) {
	n := serveNode(t, "[scheduler]\nmax_num_seqs = 2\nqueue_timeout = \"10m\"\n")
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			body := `{"prompt":"And the","max_tokens":400,"ignore_eos":true}`
			r := visit(t, http.DefaultClient, knock{"POST", n.api + "/v1/completions", body},
				"X-Tenant: "+fmt.Sprint("t", i%3), "X-Request-Id: "+fmt.Sprint("id-", i))
			if r.status != 200 {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	eventually(t, patience, func() error {
		s := stateOf(t, n.admin)
		states := map[string]int{}
		for _, r := range s.Requests {
			states[r.State]++
			if !strings.HasPrefix(r.ID, "id-") || !strings.HasPrefix(r.Tenant, "t") ||
				r.Prompt < 2 {
				t.Errorf("a request without its names: %+v", r)
			}
		}
		if s.Running == 0 || s.Waiting == 0 || states["waiting"] == 0 || states["decoding"] == 0 {
			return fmt.Errorf("%d run, %d wait, listed %v", s.Running, s.Waiting, states)
		}
		if s.Running > 2 || s.Pages.Held == 0 || s.Policy != "builtin:fcfs" {
			t.Errorf("%+v", s)
		}
		return nil
	})
	got := invoke(t, "", "top", "--once", "--admin", n.admin)
	if got.code != 0 || !strings.Contains(got.out, "REQUEST") ||
		!strings.Contains(got.out, "builtin:fcfs") {
		t.Errorf("engine top: exit %d\n%s%s", got.code, got.out, got.err)
	}
	wait.Wait()
	if s := stateOf(t, n.admin); s.Running+s.Waiting+len(s.Requests)+s.Pages.Held != 0 ||
		s.Latency.TTFT50 <= 0 || s.Pages.Leaked != 0 {
		t.Errorf("at rest: %+v", s)
	}
	dead := invoke(t, "", "top", "--once", "--admin", n.admin+"x")
	if dead.code != exitUnreachable {
		t.Errorf("nobody there: exit %d\n%s", dead.code, dead.err)
	}
	if got := invoke(t, "", "metrics", "dashboard"); got.out != string(metrics.Dashboard()) {
		t.Error("engine metrics dashboard prints something else")
	}
}

// TestReportOfPhases: who asks for it gets the phases as a last event, and they add up; nobody else
// does.
func TestReportOfPhases(t *testing.T) {
	n := serveNode(t, "")
	body := strings.Replace(short, "{", `{"stream":true,`, 1)
	ask := func(headers ...string) string {
		k := knock{"POST", n.api + "/v1/completions", body}
		return visit(t, http.DefaultClient, k, headers...).body
	}
	if text := ask(); strings.Contains(text, "phases") {
		t.Errorf("nobody asked: %s", text)
	}
	events := strings.Split(strings.TrimSpace(ask("X-Engine-Report: 1")), "\n\n")
	var last struct {
		Object  string
		Choices []struct{}
		Phases  map[string]any
	}
	text := strings.TrimPrefix(events[len(events)-2], "data: ")
	if err := json.Unmarshal([]byte(text), &last); err != nil || last.Choices == nil ||
		last.Object != "engine.report" {
		t.Fatalf("%v %s", err, text)
	}
	number := func(name string) float64 { v, _ := last.Phases[name].(float64); return v }
	sum := number("queue_ms") + number("prefill_ms")
	if number("prefill_ms") <= 0 || math.Abs(sum-number("ttft_ms")) > 1+number("ttft_ms")/2 ||
		number("output_tokens") != 4 || number("prefill_chunks") != 1 ||
		last.Phases["policy"] != "builtin:fcfs" {
		t.Errorf("%s", text)
	}
}

// TestLogsSayNoPrompt: prompts and outputs are in the log only when the operator wants them there.
func TestLogsSayNoPrompt(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		n := serveNode(t, fmt.Sprintf("[telemetry]\nlog_level = \"debug\"\nlog_prompts = %t\n",
			wanted))
		const body = `{"prompt":"zebra quagga","max_tokens":4}`
		r := visit(t, http.DefaultClient, knock{"POST", n.api + "/v1/completions", body},
			"X-Request-Id: mine")
		if r.status != 200 {
			t.Fatal(r.body)
		}
		n.stop()
		log := n.err.String()
		if strings.Contains(log, "quagga") != wanted {
			t.Errorf("log_prompts = %t, and the log is\n%s", wanted, log)
		}
		access := false
		for line := range strings.Lines(log) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("a line that is no JSON: %s", line)
			}
			if l["msg"] == "http request" && l["id"] == "mine" {
				access = true
				if l["path"] != "/v1/completions" || l["status"] != 200.0 ||
					l["method"] != "POST" || l["bytes"].(float64) < 100 {
					t.Errorf("the access log: %s", line)
				}
			}
		}
		if !access {
			t.Error("no line in the access log")
		}
	}
}
