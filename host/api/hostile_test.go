package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// listening serves the bench on a real connection, as the HTTP server is set up by others.
func (b *bench) listening(o Options) (address string) {
	b.t.Helper()
	o.Model = func() (*Model, *openai.Error) { return b.model, nil }
	o.Source, o.Seed = b.source, func() uint64 { return 1 }
	s := New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	h := &http.Server{Handler: s.API()}
	s.Limit(h)
	done := make(chan error, 1)
	go func() { done <- h.Serve(s.Listen(l)) }()
	b.t.Cleanup(func() {
		h.Close()
		<-done
	})
	return l.Addr().String()
}

// raw sends bytes and reads one answer.
func raw(t *testing.T, address, text string) (*http.Response, []byte) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, text) // The server may close before it took all.
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.40q: %v", text, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%.40q: %v", text, err)
	}
	return answer, body
}

// TestWhatIsNoRequest sends what the HTTP server refuses by itself.
func TestWhatIsNoRequest(t *testing.T) {
	address := newBench(t, "And").listening(Options{MaxBody: 1 << 16, MaxHeader: 4096})
	const start = "GET /live HTTP/1.1\r\nHost: x\r\n"
	for _, c := range []struct{ text, code, says string }{
		{start + strings.Repeat("X-A: b\r\n", 1<<14), "headers_too_large", "4096"},
		{start + "X-A: " + strings.Repeat("b", 1<<20), "headers_too_large", "4096"},
		{start + "X-A: " + strings.Repeat("b", 5000) + "\r\n\r\n", "headers_too_large", "50"},
		{"\x16\x03\x01\r\n\r\n", "invalid_value", "malformed"},
		{"GET /live HTTP/9.9\r\nHost: x\r\n\r\n", "invalid_value", "unsupported protocol version"},
		{"GET /live HTTP/1.1\r\n\r\n", "invalid_value", "missing required Host header"},
		{start + "Bad Name: 1\r\n\r\n", "invalid_value", "invalid header name"},
		{start + "Content-Length: -1\r\n\r\n", "invalid_value", "malformed"},
		{start + "Transfer-Encoding: gzip\r\n\r\n", "invalid_value", "cannot be read"},
		{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "unknown_url", "*"},
	} {
		answer, body := raw(t, address, c.text)
		e := openai.DecodeError(answer.StatusCode, body)
		if string(e.Code) != c.code || e.Status() != answer.StatusCode ||
			!strings.Contains(e.Message, c.says) {
			t.Errorf("%.60q: %s %s", c.text, answer.Status, body)
		}
	}
	if answer, body := raw(t, address, "GET /live HTTP/1.0\r\n\r\n"); answer.StatusCode != 200 {
		t.Errorf("HTTP/1.0: %s %s", answer.Status, body)
	}
}

// TestLiveBeyondTheConnections asks over one connection too many.
func TestLiveBeyondTheConnections(t *testing.T) {
	address := newBench(t, "And").listening(Options{MaxConnections: 1, MaxBody: 1 << 16})
	first, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	fmt.Fprint(first, "GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil {
		t.Fatal(err)
	}
	for path, status := range map[string]int{"/live": 200, "/v1/models": 503} {
		answer, body := raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if answer.StatusCode != status || !answer.Close {
			t.Errorf("%s: %s, close %v, %s", path, answer.Status, answer.Close, body)
		}
	}
}

// TestRoomForBodies fills the room with bodies that are held back: a long body more is refused, a
// short one is answered, and with the end of the others all of the room is free.
func TestRoomForBodies(t *testing.T) {
	const most = 1 << 16
	b := newBench(t, "And")
	s := New(Options{MaxBody: most, Source: b.source, Seed: func() uint64 { return 1 },
		Model: func() (*Model, *openai.Error) { return b.model, nil }})
	handler := s.API()
	ask := func(body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", completionsPath, body))
		return w
	}
	long := `{"prompt":"a","user":"` + strings.Repeat(" ", most-100)
	var answers []chan *httptest.ResponseRecorder
	var ends []*io.PipeWriter
	for range bodiesAtOnce * most / (most + 1 - freeBody) {
		r, w := io.Pipe()
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- ask(r) }()
		io.WriteString(w, long) // Returns when all of it was read.
		answers, ends = append(answers, answer), append(ends, w)
	}
	w := ask(strings.NewReader(long))
	if e := openai.DecodeError(w.Code, w.Body.Bytes()); e.Code != openai.CodeQueueFull ||
		w.Header().Get("Retry-After") == "" || w.Header().Get("Connection") != "close" {
		t.Errorf("with no room left: %d %s", w.Code, w.Body)
	}
	if w := ask(strings.NewReader(`{"prompt":"a"}`)); w.Code != http.StatusOK {
		t.Errorf("a short body: %d %s", w.Code, w.Body)
	}
	for i, end := range ends {
		end.Close()
		if w := <-answers[i]; w.Code != http.StatusBadRequest ||
			!bytes.Contains(w.Body.Bytes(), []byte("not JSON")) {
			t.Errorf("half a body: %d %s", w.Code, w.Body)
		}
	}
	if left := s.bodies.taken.Load(); left != 0 {
		t.Errorf("%d bytes of room were not given back", left)
	}
}
