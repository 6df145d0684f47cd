package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// spans keeps what instances send to a collector, by name.
type spans struct {
	mu  sync.Mutex
	all []span
}

type span struct {
	Service                     string
	TraceID, SpanID, ParentSpan string
	Name                        string
}

func (s *spans) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var body struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []struct {
					Key   string
					Value struct{ StringValue string }
				}
			}
			ScopeSpans []struct {
				Spans []struct{ TraceID, SpanID, ParentSpanID, Name string }
			}
		}
	}
	data, _ := io.ReadAll(r.Body)
	if json.Unmarshal(data, &body) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range body.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.instance.id" {
				service = a.Value.StringValue
			}
		}
		for _, x := range rs.ScopeSpans[0].Spans {
			s.all = append(s.all, span{service, x.TraceID, x.SpanID, x.ParentSpanID, x.Name})
		}
	}
}

// find returns an instance's span of a name within a trace; nil when none has come yet.
func (s *spans) find(trace, service, name string) *span {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.TraceID == trace && x.Service == service && x.Name == name {
			return &x
		}
	}
	return nil
}

// TestOneTraceAcrossInstances: a request that brings a traceparent is found under its trace id on
// the router, the prefill and the decode instance, each span below the call that caused it; and all
// three put it in one timeline.
func TestOneTraceAcrossInstances(t *testing.T) {
	collected := &spans{}
	server := httptest.NewServer(collected)
	defer server.Close()
	more := fmt.Sprintf("[telemetry]\notlp = %q\n", server.URL)
	c := startCluster(t, clusterOptions{prefill: more, decode: more, router: more})
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	k := knock{"POST", c.router.api + "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"In the beginning"}],"max_tokens":8,"stream":true}`}
	r := visit(t, http.DefaultClient, k, "Traceparent: 00-"+trace+"-"+parent+"-01",
		"X-Request-Id: req_traced")
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	below := func(parentID, service, name string) string {
		t.Helper()
		var x *span
		eventually(t, patience, func() error {
			if x = collected.find(trace, service, name); x == nil {
				return fmt.Errorf("no span %s of %s", name, service)
			}
			return nil
		})
		if x.ParentSpan != parentID {
			t.Errorf("%s of %s is below %s, want %s", name, service, x.ParentSpan, parentID)
		}
		return x.SpanID
	}
	root := below(parent, "r0", "chat embedded")
	send, start := below(root, "r0", "remote_send"), below(root, "r0", "start_generate")
	below(root, "r0", "prep_recv")
	sender := below(send, "p0", "POST /microserving/remote_send")
	starter := below(start, "d0", "POST /microserving/start_generate")
	for _, name := range []string{"queue", "policy.decide", "prefill", "kv.transfer"} {
		below(sender, "p0", name)
	}
	below(starter, "d0", "decode")

	file := filepath.Join(t.TempDir(), "trace.json")
	cli(t, "trace", "-o", file, "--admin", c.router.admin, "--admin", c.prefill.admin,
		"--admin", c.decode.admin)
	wantTimeline(t, file)
	rest(t, c.prefill, c.decode)
	c.stop()
}

// wantTimeline reads the document as its viewers do: three processes, and on each a thread for the
// request, whose events lie within one another as they happened.
func wantTimeline(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			PID, TID int
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	names, begins := map[string]bool{}, map[string]float64{}
	thread := map[[2]int]string{}
	for _, e := range doc.TraceEvents {
		if e.Name == "thread_name" {
			thread[[2]int{e.PID, e.TID}] = e.Args["name"].(string)
		}
		if e.Ph == "M" {
			continue
		}
		key := fmt.Sprint(e.PID, " ", e.Name)
		names[key] = true
		if strings.HasPrefix(thread[[2]int{e.PID, e.TID}], "re") ||
			strings.HasPrefix(thread[[2]int{e.PID, e.TID}], "router-") {
			begins[key] = e.Ts
		}
	}
	for _, want := range []string{"1 prep_recv", "1 remote_send", "1 start_generate", "1 prefill",
		"1 decode", "2 queue", "2 prefill chunk", "2 kv.transfer", "2 step", "3 reserved",
		"3 started", "3 first token", "3 decode"} {
		if !names[want] {
			t.Errorf("the timeline has no %q: %v", want, names)
		}
	}
	order := []string{"1 prep_recv", "3 reserved", "1 remote_send", "2 prefill chunk", "3 started",
		"3 first token"}
	if !slices.IsSortedFunc(order, func(a, b string) int {
		return int(begins[a] - begins[b])
	}) {
		t.Errorf("%v is not the order of %v", order, begins)
	}
}

// TestPhasesAddUp: what an answer says of the time to its first token adds up to it, the header and
// the report and the metrics say the same, a slow link shows as transfer and nowhere else, and the
// whole is within what the client measured. Through a router, and on one engine.
func TestPhasesAddUp(t *testing.T) {
	slow, _ := slowCluster(t, "450KiB/s", "")
	alone := serveNode(t, "[node]\nname = \"one\"\n")
	long, _ := longCase(t)
	for _, c := range []struct {
		name string
		node *node
		slow bool
	}{{"behind a slow link", slow.router, true}, {"one engine", alone, false}} {
		body := greedy.with(fields{"prompt": long.PromptIDs, "max_tokens": 4, "stream": true})
		begun := time.Now()
		p, header, seen := phasesOf(t, c.node.api+"/v1/completions", body, begun)
		sum := p.Queue + p.Prefill + p.Tail + p.Wait + p.First
		if math.Abs(sum-p.TTFT) > 0.01 {
			t.Errorf("%s: %+v add up to %v", c.name, p, sum)
		}
		// How much later the client sees it is the machine's business: only a slow link outweighs
		// that.
		at := openai.Milliseconds(seen)
		if p.TTFT > at || c.slow && p.TTFT < at/4 {
			t.Errorf("%s: TTFT %v ms, the client saw %v ms", c.name, p.TTFT, at)
		}
		if policy := header.Get(openai.HeaderPolicy); policy != p.Policy {
			t.Errorf("%s: the header names %q, the report %q", c.name, policy, p.Policy)
		}
		if timing := openai.ParseTiming(header.Get("Server-Timing")); math.Abs(
			openai.Milliseconds(timing.Sum())-p.TTFT) > 0.01 {
			t.Errorf("%s: the header says %q, the report %+v", c.name, header["Server-Timing"], p)
		}
		if p.Prefill <= 0 || p.Queue < 0 || p.First <= 0 {
			t.Errorf("%s: %+v", c.name, p)
		}
		if c.slow && (p.Tail < 500 || p.Wait <= 0) || !c.slow && (p.Tail != 0 || p.Wait != 0) {
			t.Errorf("%s: %+v", c.name, p)
		}
		s, err := scrape(c.node.api)
		if err != nil {
			t.Fatal(err)
		}
		phases := s.sum("engine_time_to_first_token_phase_seconds_sum")
		if math.Abs(phases*1000-p.TTFT) > 0.01 ||
			s.sum("engine_time_to_first_token_phase_seconds_count", `phase="queue"`) != 1 ||
			s.sum("engine_time_to_first_token_seconds_count") != 1 {
			t.Errorf("%s: the metrics say %v s of %v ms", c.name, phases, p.TTFT)
		}
	}
}

// phasesOf makes a streamed request and returns its report, the headers, and when its first event
// came.
func phasesOf(t *testing.T, url string, body fields, begun time.Time) (p openai.Phases,
	header http.Header, first time.Duration) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", url, body.reader(t))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(openai.HeaderReport, "1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := openai.NewEventReader(response.Body)
	for {
		data, err := events.Next()
		if err == io.EOF {
			return p, response.Header, first
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = time.Since(begun)
		}
		var event struct{ Phases *openai.Phases }
		if err := json.Unmarshal(data, &event); err != nil {
			t.Fatal(err)
		}
		if event.Phases != nil {
			p = *event.Phases
		}
	}
}
