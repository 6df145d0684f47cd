package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"runtime/debug"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
)

// maxRequestID bounds an id that a client brings.
const maxRequestID = 128

// requestID is the client's own label, if it is fit to print, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > maxRequestID {
		return "req_" + randomHex()
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return "req_" + randomHex()
		}
	}
	return id
}

// headerSize is about the size of the request line and the headers on the wire.
func headerSize(r *http.Request) int {
	const line = len(": \r\n")
	size := len(r.Method) + len(r.RequestURI) + len(r.Proto) + line + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + line
		}
	}
	return size
}

func randomHex() string {
	var b [12]byte
	rand.Read(b[:]) // It never fails.
	return hex.EncodeToString(b[:])
}

func stack() string { return string(debug.Stack()) }

// recorder remembers the status that was written.
type recorder struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach flush and deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) status() int { return w.code }

// fail answers with an error. Nothing was written before.
func (s *Server) fail(x *exchange, e *openai.Error) {
	s.options.Watch.Rejected(string(e.Code))
	if e.Code == openai.CodeInternal {
		s.options.Log.Error("request failed", "id", x.id, "error", e.Message)
	}
	if e = x.stillThere(e); e.Code == openai.CodeClientDisconnected {
		x.w.code = openai.Lookup(e.Code).Status // Counted, never sent.
		return
	}
	openai.WriteError(x.w, e)
}

// stillThere is the error for a client that is told it has gone and has not: that is a bug of ours,
// and silence would pass for an answer.
func (x *exchange) stillThere(e *openai.Error) *openai.Error {
	if e.Code != openai.CodeClientDisconnected || x.r.Context().Err() != nil {
		return e
	}
	return openai.Errorf(openai.CodeInternal, "", "the generation ended without a word; request %s",
		x.id)
}

// wireError words a source's error for the client.
func wireError(err error) *openai.Error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return openai.Errorf(openai.CodeQueueTimeout, "",
			"the request took longer than the instance allows (api.request_timeout)")
	}
	if errors.Is(err, context.Canceled) {
		return openai.Errorf(openai.CodeClientDisconnected, "", "the client went away")
	}
	g := generation.AsError(err)
	fault := openai.Errorf(openai.Code(g.Code), g.Param, "%s", g.Message)
	fault.RetryAfter = g.RetryAfter
	return fault
}
