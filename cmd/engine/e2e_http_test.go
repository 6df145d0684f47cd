package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// fields is a JSON body as a client writes it.
type fields map[string]any

// with returns a copy with some fields more.
func (f fields) with(more fields) fields {
	all := fields{}
	for k, v := range f {
		all[k] = v
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// reply is an answer as it came.
type reply struct {
	status int
	header http.Header
	body   string
}

// failure reads the body as an error object.
func (r reply) failure(t *testing.T) (code, message string) {
	t.Helper()
	e := openai.DecodeError(r.status, []byte(r.body))
	if e.Status() != r.status {
		t.Errorf("status %d, but the code says %d: %s", r.status, e.Status(), r.body)
	}
	return string(e.Code), e.Message
}

// decode reads the body of a success.
func (r reply) decode(t *testing.T, to any) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), to); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
}

// completion reads the body as an answer of /v1/completions.
func (r reply) completion(t *testing.T) openai.CompletionResponse {
	t.Helper()
	var c openai.CompletionResponse
	r.decode(t, &c)
	return c
}

// send makes a request with any method and body.
func send(ctx context.Context, method, url string, body io.Reader) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return reply{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(data)}, err
}

// post makes a JSON request that must be answered, however.
func post(t *testing.T, url string, body fields) reply {
	t.Helper()
	r, err := send(t.Context(), http.MethodPost, url, body.reader(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (f fields) reader(t *testing.T) io.Reader {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

// get makes a GET request that must be answered.
func get(t *testing.T, url string) reply {
	t.Helper()
	r, err := send(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// live is a stream of events that is being read.
type live struct {
	t      *testing.T
	events *openai.EventReader
	body   io.Closer
	cancel context.CancelFunc
}

// open begins a streaming request.
func open(t *testing.T, url string, body fields) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		body.with(fields{"stream": true}).reader(t))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK ||
		!strings.HasPrefix(kind, "text/event-stream") {
		data, _ := io.ReadAll(response.Body)
		t.Fatalf("status %d, %s: %s", response.StatusCode, kind, data)
	}
	return &live{t, openai.NewEventReader(response.Body), response.Body, cancel}
}

// next reads one event; false after [DONE].
func (l *live) next(to any) bool {
	l.t.Helper()
	data, err := l.events.Next()
	if err == io.EOF {
		return false
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		l.t.Fatalf("%v: %s", err, data)
	}
	return true
}

// leave goes away as a client does that closes its connection.
func (l *live) leave() {
	l.cancel()
	l.body.Close()
}
