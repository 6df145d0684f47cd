package metrics

import (
	"strings"
	"testing"
)

// TestARouterTellsOnlyWhatItKnows: what an engine counts is not there at all, instead of at 0; what
// it measures itself is.
func TestARouterTellsOnlyWhatItKnows(t *testing.T) {
	text := scrape(t, New(Options{Model: "m", Role: "router", Node: "r"}), "")
	for _, absent := range []string{"engine_kv_pages", "engine_requests_waiting", "engine_step_",
		"engine_prefill_seconds", "engine_transfer", "engine_policy", "vllm:",
		"engine_generation_tokens"} {
		if strings.Contains(text, absent) {
			t.Errorf("a router tells of %s", absent)
		}
	}
	for _, there := range []string{"engine_time_to_first_token_seconds_count", "engine_ready",
		"engine_inter_token_latency_seconds_count", "engine_router_decisions_total",
		"engine_build_info"} {
		if !strings.Contains(text, there) {
			t.Errorf("a router does not tell of %s", there)
		}
	}
}
