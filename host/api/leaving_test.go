package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// TestProgress: /health/progress is red when work has waited for the limit and nothing ran, and
// says so as every error does; on all listeners, while /live and /ready stay what they are.
func TestProgress(t *testing.T) {
	var since time.Duration
	s := New(Options{Stalled: func() time.Duration { return since }, Stall: 10 * time.Second})
	for _, h := range []http.Handler{s.API(), s.Internal(), s.Health()} {
		for _, c := range []struct {
			since  time.Duration
			status int
		}{{0, 200}, {9999 * time.Millisecond, 200}, {10 * time.Second, 503}, {time.Hour, 503}} {
			since = c.since
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/health/progress", nil))
			if w.Code != c.status {
				t.Errorf("after %v: %d %s", c.since, w.Code, w.Body)
			}
			if w.Code != 200 && openai.DecodeError(w.Code, w.Body.Bytes()).Code !=
				openai.CodeNoProgress {
				t.Errorf("%s", w.Body)
			}
			for _, path := range []string{"/live", "/ready"} {
				w = httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
					t.Errorf("%s: %d", path, w.Code)
				}
			}
		}
	}
}

// TestLeavingComesBeforeRefusing: probes hear first that an instance leaves; requests are refused
// later, with a word when to come back.
func TestLeavingComesBeforeRefusing(t *testing.T) {
	b := newBench(t, "and")
	fault := openai.Errorf(openai.CodeDraining, "", "it leaves")
	fault.RetryAfter = 7 * time.Second
	var leaving, draining *openai.Error
	b.handler = New(Options{
		Model:  func() (*Model, *openai.Error) { return b.model, nil },
		Source: b.source, Seed: func() uint64 { return 1 }, MaxBody: 1 << 16, MaxStop: 4, MaxN: 3,
		Leaving: func() *openai.Error { return leaving }, Metrics: http.NotFoundHandler(),
		Draining: func() *openai.Error { return draining },
	}).API()
	ask := func() (ready, completion, chat *httptest.ResponseRecorder) {
		return b.send("GET", "/ready", ""), b.send("POST", "/v1/completions", `{"prompt":"a"}`),
			b.send("POST", "/v1/chat/completions",
				`{"messages":[{"role":"user","content":"a"}]}`)
	}
	leaving = fault
	if ready, completion, chat := ask(); ready.Code != 503 || completion.Code != 200 ||
		chat.Code != 200 {
		t.Errorf("leaving: %d, %d %s, %d", ready.Code, completion.Code, completion.Body, chat.Code)
	}
	draining = fault
	ready, completion, chat := ask()
	for _, w := range []*httptest.ResponseRecorder{ready, completion, chat} {
		if w.Code != 503 || w.Header().Get("Retry-After") != "7" {
			t.Errorf("draining: %d %s %v", w.Code, w.Body, w.Header())
		}
	}
}

// TestTimingAddsUp: what came before the source was asked is queue, what the source does not know
// is the first token's, and the header is read as it was written.
func TestTimingAddsUp(t *testing.T) {
	b := newBench(t, "and the earth")
	w := b.send("POST", "/v1/completions", `{"prompt":"a"}`)
	timing := openai.ParseTiming(w.Header().Get("Server-Timing"))
	if timing.Sum() <= 0 || timing.String() != w.Header().Get("Server-Timing") {
		t.Errorf("%q became %v", w.Header().Get("Server-Timing"), timing)
	}
	for _, bad := range []string{"", "queue", "queue;dur=x", "queue;dur=-1", "other;dur=3",
		"queue;dur=NaN", "queue;dur=1e300", ";;,,;dur=1"} {
		if got := openai.ParseTiming(bad); got != (openai.Timing{}) {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
