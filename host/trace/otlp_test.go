package trace

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// sent is the part of a collector's request that these tests read.
type sent struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []attr }
		ScopeSpans []struct {
			Scope struct{ Name, Version string }
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				Kind                                int
				StartTimeUnixNano, EndTimeUnixNano  string
				Attributes                          []attr
				Events                              []struct{ Name, TimeUnixNano string }
				Status                              struct {
					Code    int
					Message string
				}
			}
		}
	}
}

type attr struct {
	Key   string
	Value map[string]any
}

// collector keeps what is sent to it.
func collector(t *testing.T) (url string, got func() []sent) {
	t.Helper()
	var mu sync.Mutex
	var all []sent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var s sent
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" ||
			json.Unmarshal(body, &s) != nil {
			t.Errorf("%s %s %s", r.Method, r.URL, body)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []sent {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// tracerTo starts a tracer for a collector.
func tracerTo(t *testing.T, url string) *Tracer {
	t.Helper()
	tracer, err := NewTracer(TracerOptions{Endpoint: url, Version: "1",
		Resource: []Attr{{"service.name", "engine"}}})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// TestSpansReachTheCollector: a server's span, a client's below it, another process's below that,
// and one of the past: one trace id, each the child of the one before, with its times and values.
func TestSpansReachTheCollector(t *testing.T) {
	url, got := collector(t)
	front, back := tracerTo(t, url), tracerTo(t, url)
	server := front.Start("POST /v1/completions", Server, "no traceparent")
	server.Rename("chat m")
	server.Set("s", "text")
	server.Set("n", 7)
	server.Set("b", true)
	server.Set("f", 0.5)
	call := front.Start("remote_send", Client, server.Context())
	far := back.Start("POST /microserving/remote_send", Server, call.Context())
	at := time.Unix(1_700_000_000, 5)
	back.Child(far.Context(), Finished{Name: "prefill", Begin: at, End: at.Add(time.Second),
		Moments: []Moment{{Name: "chunk", At: at}}})
	far.End("")
	call.End("it broke")
	server.Note("first token")
	server.End("")
	server.End("twice")
	front.Close()
	back.Close()

	type span struct{ trace, id, parent string }
	found := map[string]span{}
	for _, s := range got() {
		for _, x := range s.ResourceSpans[0].ScopeSpans[0].Spans {
			found[x.Name] = span{x.TraceID, x.SpanID, x.ParentSpanID}
			switch x.Name {
			case "prefill":
				if x.StartTimeUnixNano != "1700000000000000005" || len(x.Events) != 1 ||
					x.EndTimeUnixNano != "1700000001000000005" || x.Kind != int(Internal) {
					t.Errorf("%+v", x)
				}
			case "remote_send":
				if x.Status.Code != 2 || x.Status.Message != "it broke" || x.Kind != int(Client) {
					t.Errorf("%+v", x)
				}
			case "chat m":
				values := map[string]any{}
				for _, a := range x.Attributes {
					for _, v := range a.Value {
						values[a.Key] = v
					}
				}
				if values["s"] != "text" || values["n"] != "7" || values["b"] != true ||
					values["f"] != 0.5 || x.Status.Code != 0 || len(x.Events) != 1 {
					t.Errorf("%+v", x)
				}
			}
		}
	}
	chain := []string{"chat m", "remote_send", "POST /microserving/remote_send", "prefill"}
	for i, name := range chain {
		s := found[name]
		if len(s.trace) != 32 || len(s.id) != 16 || s.trace != found["chat m"].trace ||
			i == 0 && s.parent != "" || i > 0 && s.parent != found[chain[i-1]].id {
			t.Errorf("%s: %+v in %+v", name, s, found)
		}
	}
	if len(found) != len(chain) {
		t.Errorf("%d spans", len(found))
	}
}

// TestWithoutATracerThePlaceIsHandedOn, as it came; nothing else happens.
func TestWithoutATracerThePlaceIsHandedOn(t *testing.T) {
	const place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var none *Tracer
	s := none.Start("x", Server, place)
	s.Set("a", 1)
	s.Note("b")
	s.Rename("c")
	s.End("")
	none.Child(place, Finished{})
	none.Close()
	if s.Context() != place || none.Start("x", Server, "junk").Context() != "" ||
		none.Dropped() != 0 {
		t.Errorf("%q", s.Context())
	}
	url, got := collector(t)
	tracer, err := NewTracer(TracerOptions{Endpoint: url})
	if err != nil {
		t.Fatal(err)
	}
	const unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	s = tracer.Start("x", Server, unsampled)
	s.End("")
	tracer.Close()
	if s.Context() != unsampled || len(got()) != 0 {
		t.Errorf("a request that is not sampled: %q, %v", s.Context(), got())
	}
}

// TestNobodyWaitsForACollector: a collector that takes nothing costs spans, never time.
func TestNobodyWaitsForACollector(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-hold
	}))
	defer server.Close()
	defer close(hold)
	tracer, err := NewTracer(TracerOptions{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxQueued {
		tracer.Start(strconv.Itoa(i), Internal, "").End("")
	}
	if tracer.Dropped() < maxQueued {
		t.Errorf("%d spans were dropped", tracer.Dropped())
	}
	for _, bad := range []string{"", "127.0.0.1:4318", "ftp://x", "http://", "http://a b"} {
		if _, err := NewTracer(TracerOptions{Endpoint: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
