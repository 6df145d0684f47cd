package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/admin"
)

const exported = `# HELP engine_kv_pages Pages by owner.
engine_kv_pages{model="m",state="free"} 40
engine_kv_pages{model="m",state="pinned"} 7
engine_kv_pages{model="m",state="evictable"} 3
engine_requests_running{model="m"} 2
engine_requests_waiting{model="m"} 1e+00
engine_requests_finished_total{reason="error"} 5
engine_step_tokens_sum{kind="decode",model="m"} 100
engine_step_tokens_sum{kind="prefill",model="m"} 50
engine_step_seconds_count{stage="run"} 10
engine_step_seconds_sum{stage="run"} 0.5
engine_policy_info{policy="old",state="previous",version="1"} 1
engine_policy_info{policy="mine",state="active",version="3"} 1
other{x="y"} NaN
`

// TestInstancesAreRead: gauges are read, rates are what grew between two looks, a look is shared by
// those who ask at once, and an instance that is gone says so.
func TestInstancesAreRead(t *testing.T) {
	text, asked := exported, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(text))
	}))
	at := time.Unix(1000, 0)
	f := newFronted(nil, nil)
	f.now = func() time.Time { return at }
	look := func() (i admin.Instance) {
		f.look(t.Context(), server.URL, &i)
		return i
	}
	i := look()
	if i.Running != 2 || i.Waiting != 1 || i.Pages.Total != 50 || i.Errors != 5 ||
		i.Policy != "mine@3" || i.DecodePerSecond != 0 || i.Problem != "" {
		t.Errorf("%+v", i)
	}
	text = strings.NewReplacer(`"decode",model="m"} 100`, `"decode",model="m"} 160`,
		`"run"} 10`, `"run"} 20`, `"run"} 0.5`, `"run"} 0.7`).Replace(exported)
	at = at.Add(100 * time.Millisecond)
	if look(); asked != 1 {
		t.Errorf("%d scrapes within half a second", asked)
	}
	at = at.Add(1900 * time.Millisecond)
	if i = look(); i.DecodePerSecond != 30 || i.PrefillPerSecond != 0 || i.BatchTokens != 6 ||
		i.StepMilliseconds < 19.9 || i.StepMilliseconds > 20.1 {
		t.Errorf("%+v", i)
	}
	text = exported // Started anew: counters fell.
	at = at.Add(time.Second)
	if i = look(); i.DecodePerSecond != 0 || i.StepMilliseconds != 0 {
		t.Errorf("after a restart: %+v", i)
	}
	server.Close()
	at = at.Add(time.Second)
	if i = look(); i.Problem == "" || i.Running != 0 {
		t.Errorf("gone: %+v", i)
	}
}

// FuzzReadSeries feeds any text as an instance's metrics.
func FuzzReadSeries(f *testing.F) {
	f.Add(exported)
	f.Add("engine_kv_pages{state=\"free 1\nengine_policy_info{state=\"active\"} x")
	f.Fuzz(func(t *testing.T, text string) {
		values, _, err := readSeries(strings.NewReader(text))
		if err == nil && len(values) > 2*strings.Count(text, "\n")+2 {
			t.Errorf("%d values of %d lines", len(values), strings.Count(text, "\n")+1)
		}
	})
}
