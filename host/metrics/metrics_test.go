package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/series.txt")

func scrape(t *testing.T, m *Metrics, accept string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	m.Handler().ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// use touches every method once.
func use() *Metrics {
	m := New(Options{
		Model: "m", Role: "all", Node: "n", Version: "v", Commit: "c", Go: "go", ABI: "1.0",
	})
	m.SetReady(true)
	m.HTTPRequest("/v1/models", 200)
	m.AddHTTPConnections(1)
	m.RequestFinished(EndStop)
	m.RequestRejected("queue_full")
	m.SetRequests([Finished]int{Waiting: 1, Prefilling: 2, Prepared: 4, Receiving: 8, Decoding: 16})
	m.RequestMoved(Waiting, Prefilling)
	m.RequestMoved(Finished, Waiting)
	m.PromptTokens(10)
	m.OutputTokens(20)
	m.TenantTokens("acme", 30)
	m.FirstToken(time.Second)
	m.BetweenTokens(time.Millisecond)
	m.RequestPhases(Phases{Queue: time.Second, Decode: time.Second, Prefill: -1, PerToken: -1})
	m.StepStage(Run, time.Millisecond)
	m.StepTokens(100, 0)
	m.Preempted(CauseMemory)
	m.SetCapacity(100, 16, "f32")
	m.SetPages(Pages{Free: 50, Pinned: 20, Evictable: 24, Quarantine: 5, Capacity: 100})
	m.PrefixLookup(10, 4)
	m.PrefixEvicted(1)
	m.TransferBytes(Send, "tcp", 4096)
	m.TransferDone(Receive, "tcp", time.Millisecond)
	m.TransferHidden(3*time.Millisecond, time.Millisecond)
	m.AddTransfers(Send, 1)
	m.TransferFailed(Receive, FailDigest)
	m.SetLeases(1, 2, 3)
	m.LeasesExpired(1)
	m.Placed(DecisionRemote)
	m.Retried("kv_transfer_failed")
	m.SetInstance(Instance{Name: "p0", Role: "prefill", Up: true, InFlight: 3})
	m.SetPolicy(SlotActive, PolicyInfo{"old", "1", "aa", "1.0"})
	m.SetPolicy(SlotActive, PolicyInfo{"fcfs", "2", "bb", "1.0"})
	m.PolicyDecided(PolicyCall{"fcfs", time.Microsecond, 12_345, 2e6, 65536})
	m.SetPolicyBreaker("p", BreakerHalfOpen)
	m.PolicyRecovery("p", "recovered")
	m.PolicyFault("fcfs", "trap")
	m.PolicyFallback("fcfs")
	m.PolicyDecisions("fcfs", VerdictUsed, 3)
	m.PolicyStarved("fcfs", BoundHardAge)
	m.PolicySwap("fcfs", SwapActivated, time.Microsecond, 7)
	m.PolicyLogDropped("fcfs", 2)
	return m
}

// TestSeriesAreAnInterface compares the names, types and label names with a file that says what
// outside readers count on. A change there is a change of an interface.
func TestSeriesAreAnInterface(t *testing.T) {
	got := describe(scrape(t, use(), ""))
	if *update {
		if err := os.WriteFile("testdata/series.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/series.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the series differ from testdata/series.txt (-update rewrites it):\n%s", got)
	}
}

// describe lists each family of engine_* and vllm:* as "name type label label".
func describe(text string) string {
	kinds := map[string]string{}
	labels := map[string]map[string]bool{}
	label := regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[0] == "#" {
			if f[1] == "TYPE" {
				kinds[f[2]] = f[3]
			}
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); kinds[base] == "histogram" {
				name = base
			}
		}
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(line, -1) {
			labels[name][l[1]] = l[1] != "le"
		}
	}
	var all []string
	for name, kind := range kinds {
		if !strings.HasPrefix(name, "engine_") && !strings.HasPrefix(name, "vllm:") {
			continue
		}
		row := []string{}
		for l, shown := range labels[name] {
			if shown {
				row = append(row, l)
			}
		}
		slices.Sort(row)
		all = append(all, name+" "+kind+" "+strings.Join(row, " ")+"\n")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

func TestValues(t *testing.T) {
	text := scrape(t, use(), "")
	const common = `model="m",node="n",`
	for _, want := range []string{
		`engine_requests_waiting{model="m",node="n",role="all"} 13`,
		`vllm:num_requests_waiting{engine="0",model_name="m"} 13`,
		`vllm:num_requests_running{engine="0",model_name="m"} 18`,
		`engine_requests{` + common + `role="all",state="receiving"} 8`,
		`engine_kv_pages_leaked{model="m",node="n",role="all"} 1`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25`,
		`vllm:cache_config_info{block_size="16",engine="0",model_name="m",num_gpu_blocks="100"} 1`,
		`engine_request_moves_total{from="waiting",` + common + `role="all",to="prefilling"} 1`,
		`engine_request_moves_total{from="decoding",` + common + `role="all",to="finished"} 0`,
		`engine_prefill_seconds_count{model="m",node="n",role="all"} 0`,
		`engine_request_queue_seconds_count{model="m",node="n",role="all"} 1`,
		`engine_step_seconds_bucket{` + common + `role="all",stage="run",le="1e-05"} 0`,
		`engine_step_seconds_bucket{` + common + `role="all",stage="run",le="0.001"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	for _, not := range []string{`policy="old"`, `to="waiting",role="all",from="finished"`} {
		if strings.Contains(text, not) {
			t.Errorf("holds %s", not)
		}
	}
	for _, want := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
	open := scrape(t, use(), "application/openmetrics-text; version=1.0.0")
	if !strings.Contains(open, "vllm:num_requests_waiting") || !strings.HasSuffix(open, "# EOF\n") {
		t.Error("OpenMetrics lacks the vllm names")
	}
}

func TestInstancesAreForgotten(t *testing.T) {
	m := use()
	m.ForgetInstance("p0", "prefill")
	m.SetPolicy(SlotActive, PolicyInfo{})
	for _, not := range []string{`instance="p0"`, `state="active"`} {
		if strings.Contains(scrape(t, m, ""), not) {
			t.Errorf("holds %s", not)
		}
	}
}

func TestTheStepAllocatesNothing(t *testing.T) {
	m := use()
	if n := testing.AllocsPerRun(100, func() {
		m.StepStage(Plan, time.Millisecond)
		m.StepTokens(5, 7)
		m.SetPages(Pages{Free: 1, Capacity: 1})
		m.SetRequests([Finished]int{Waiting: 1})
		m.RequestMoved(Waiting, Prefilling)
		m.BetweenTokens(time.Millisecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	m := use()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				m.SetPolicy(SlotActive, PolicyInfo{"p", string(rune('a' + i)), "d", "1.0"})
				m.PolicySwap("p", SwapActivated, 0, uint64(i))
				m.HTTPRequest("/", 200+i)
				m.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		})
	}
	all.Wait()
	if n := strings.Count(scrape(t, m, ""), `state="active"`); n != 1 {
		t.Errorf("%d active policies are shown", n)
	}
}
