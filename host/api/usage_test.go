package api

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// TestContinuousUsage: every chunk tells the tokens so far, and the last chunk of an answer what
// the summary tells; without include_usage none does.
func TestContinuousUsage(t *testing.T) {
	const options = `"n":2,"stream":true,"stream_options":{"continuous_usage_stats":true`
	b := newBench(t, "And God said, And God saw")
	list := events[openai.ChatChunk](b, chatPath,
		`{"messages":[{"role":"user","content":"a"}],`+options+`,"include_usage":true}}`)
	var last openai.Usage
	for i, e := range list {
		u := e.Usage.Usage
		if u == nil || u.PromptTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens ||
			u.CompletionTokens < last.CompletionTokens {
			t.Fatalf("chunk %d: %+v after %+v", i, u, last)
		}
		if i == 0 && u.CompletionTokens != 0 {
			t.Errorf("the opening has %+v", u)
		}
		if end := i == len(list)-1; end && *u != last {
			t.Errorf("the summary has %+v, the chunk before %+v", *u, last)
		}
		last = *u
	}
	if len(list) < 8 || last.PromptTokensDetails.CachedTokens != 3 {
		t.Errorf("%d chunks, %+v", len(list), last)
	}
	for _, e := range events[openai.CompletionResponse](b, completionsPath,
		`{"prompt":"In",`+options+`}}`) {
		if e.Usage.Shown {
			t.Errorf("usage without include_usage: %+v", e)
		}
	}
}

// TestHealth: /health is /ready by another name, on both listeners.
func TestHealth(t *testing.T) {
	var fault *openai.Error
	s := New(Options{Ready: func() *openai.Error { return fault }})
	for _, h := range []http.Handler{s.API(), s.Internal(), s.Health()} {
		for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			if fault = nil; want != http.StatusOK {
				fault = openai.Errorf(openai.CodeModelLoading, "", "loading")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
			if w.Code != want {
				t.Errorf("status %d, want %d: %s", w.Code, want, w.Body)
			}
		}
	}
}
