package admin

import (
	"bytes"
	"context"
	"net/http"
)

// State is what an instance does at one moment: what `engine top` and the page at /ui draw.
type State struct {
	Node    string  `json:"node"`
	Role    string  `json:"role"`
	Model   string  `json:"model"`
	Version string  `json:"version"`
	Uptime  float64 `json:"uptime_s"`
	Ready   bool    `json:"ready"`
	// Policy is NAME or NAME@VERSION; "" on a router, which runs none.
	Policy string `json:"policy"`
	Load
	// Latency is over the latest requests that this instance answered.
	Latency Latency `json:"latency"`
	// Requests run or wait here, oldest first; at most 256 of Load's sum.
	Requests []Request `json:"requests"`
	// Instances are those behind a router.
	Instances []Instance `json:"instances,omitempty"`
}

// Load is what an instance has to do, and how fast it does it over the latest ten seconds.
type Load struct {
	Running           int     `json:"running"`
	Waiting           int     `json:"waiting"`
	Pages             Pages   `json:"pages"`
	RequestsPerSecond float64 `json:"requests_per_s"`
	PrefillPerSecond  float64 `json:"prefill_tokens_per_s"`
	DecodePerSecond   float64 `json:"decode_tokens_per_s"`
	BatchTokens       float64 `json:"batch_tokens"` // mean of a step
	StepMilliseconds  float64 `json:"step_ms"`      // mean
	Errors            int     `json:"errors"`       // since the start
	Refused           int     `json:"refused"`      // since the start, with 429
}

// Pages are the KV pages by owner.
type Pages struct {
	Free       int `json:"free"`
	Held       int `json:"held"`
	Cached     int `json:"cached"`
	Quarantine int `json:"quarantine"`
	Total      int `json:"total"`
	Leaked     int `json:"leaked"`
}

// Latency are quantiles in milliseconds; 0 where nothing was measured.
type Latency struct {
	TTFT50 float64 `json:"ttft_p50_ms"`
	TTFT99 float64 `json:"ttft_p99_ms"`
	ITL50  float64 `json:"itl_p50_ms"`
	ITL99  float64 `json:"itl_p99_ms"`
}

// Request is one request that runs or waits.
type Request struct {
	ID       string  `json:"id"`
	Tenant   string  `json:"tenant"`
	State    string  `json:"state"`
	Prompt   int     `json:"prompt_tokens"`
	Cached   int     `json:"cached_tokens"`
	Computed int     `json:"computed_tokens"`
	Output   int     `json:"output_tokens"`
	Pages    int     `json:"pages"`
	Age      float64 `json:"age_s"`
	Priority int32   `json:"priority"`
	// Preempted is how often it lost its pages.
	Preempted int `json:"preempted"`
	// Reason is the number that the policy gave with its last decision about it; 0 is none.
	Reason uint16 `json:"policy_reason"`
	// Words is what the policy.toml of that policy says of the reason; "" where it says nothing.
	Words string `json:"policy_words,omitempty"`
}

// Instance is one behind a router, as its /metrics say. Problem says why it told
// nothing, or why it is not used.
type Instance struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Up   bool   `json:"up"`
	// State is up, starting (it has not answered a check yet), draining, silent (it did not answer
	// the latest check in time) or down.
	State    string `json:"state,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	URL      string `json:"url,omitempty"`
	InFlight int    `json:"in_flight"`
	Policy   string `json:"policy"`
	Load
	Problem string `json:"problem,omitempty"`
}

// state answers with what the instance does now.
func (s *server) state(ctx context.Context, _ []byte) (State, error) {
	return s.options.State(ctx), nil
}

// trace answers with the latest events, as long as the document may be.
func (s *server) trace(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer
	if err := s.options.Trace(&text); err != nil {
		write(w, http.StatusBadRequest, Failure{err.Error()})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text.Bytes()) // An operator who is gone notices nothing.
}

// dashboard answers with the dashboard for Grafana.
func (s *server) dashboard(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(s.options.Dashboard) // An operator who is gone notices nothing.
}
