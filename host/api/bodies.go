package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

const (
	// slowestBody is how long a body may take to arrive.
	slowestBody = 60 * time.Second
	// bodiesAtOnce is how many bodies of the largest size there is room for, together.
	bodiesAtOnce = 8
	// freeBody is what each request may bring without asking for that room, in bytes, so that short
	// ones are answered while long ones fill it.
	freeBody = 16 << 10
)

// room counts the bytes of bodies that are in memory because they arrive, are decoded or become
// tokens.
type room struct{ taken atomic.Int64 }

// held is what one request has of it.
type held struct {
	room  *room
	bytes int64
}

// grow takes room for a buffer of n bytes, out of limit for all; false if there is none.
func (h *held) grow(n, limit int64) bool {
	more := n - freeBody - h.bytes
	if more <= 0 {
		return true
	}
	if h.room.taken.Add(more) > limit {
		h.room.taken.Add(-more)
		return false
	}
	h.bytes += more
	return true
}

// release gives everything back; doing it again changes nothing.
func (h *held) release() {
	h.room.taken.Add(-h.bytes)
	h.bytes = 0
}

// limitReading bounds the time a body takes, also one that nobody reads: the HTTP server waits for
// its end before it answers.
func (x *exchange) limitReading() {
	if x.r.ContentLength != 0 {
		// Tests' recorders have no deadlines.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(slowestBody))
	}
}

// body reads the whole body, within the limits. Only after its end does the server notice a client
// that goes away. Where it fails the connection is given up.
func (s *Server) body(x *exchange) ([]byte, *openai.Error) {
	data, fault := s.readBody(x)
	if fault != nil {
		x.w.Header().Set("Connection", "close")
		return nil, fault
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	return data, nil
}

func (s *Server) readBody(x *exchange) ([]byte, *openai.Error) {
	r := http.MaxBytesReader(x.w, x.r.Body, s.options.MaxBody)
	data := make([]byte, 0, 512)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, s.badBody(err)
		}
		if len(data) < cap(data) {
			continue
		}
		// At most double what has come, whatever the client says will come.
		larger := min(2*int64(cap(data)), s.options.MaxBody+1)
		if !x.held.grow(larger, bodiesAtOnce*s.options.MaxBody) {
			return nil, openai.Errorf(openai.CodeQueueFull, "", "the bodies of other requests "+
				"fill the %d bytes there are for them (%d × api.max_body); try again later",
				bodiesAtOnce*s.options.MaxBody, bodiesAtOnce)
		}
		data = append(make([]byte, 0, larger), data...)
	}
}

// badBody words why a body could not be read.
func (s *Server) badBody(err error) *openai.Error {
	switch _, large := errors.AsType[*http.MaxBytesError](err); {
	case large:
		return openai.Errorf(openai.CodeRequestTooLarge, "",
			"the body is larger than the limit of %d bytes (api.max_body)", s.options.MaxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return openai.Errorf(openai.CodeInvalidJSON, "",
			"the body did not arrive whole within %v", slowestBody)
	}
	return openai.Errorf(openai.CodeInvalidJSON, "", "read the body: %v", err)
}
