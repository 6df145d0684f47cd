package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// done ends every stream.
const done = "[DONE]"

// EventWriter writes one answer as server-sent events. It serves one goroutine.
type EventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	started bool
	buffer  bytes.Buffer
}

// NewEventWriter makes a writer. A client that takes nothing for timeout fails the write; 0 waits
// for ever. Nothing is written, no header set, before the first event.
func NewEventWriter(w http.ResponseWriter, timeout time.Duration) *EventWriter {
	return &EventWriter{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Started reports whether the status has been sent: then a failure must be an event.
func (e *EventWriter) Started() bool { return e.started }

// Send writes one event with v as JSON and flushes it.
func (e *EventWriter) Send(v any) error {
	data, err := marshal(v)
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	e.buffer.WriteString("data: ")
	e.buffer.Write(data)
	e.buffer.WriteString("\n\n")
	return e.flush()
}

// KeepAlive writes a comment, which clients skip.
func (e *EventWriter) KeepAlive() error {
	e.buffer.WriteString(": keep-alive\n\n")
	return e.flush()
}

// Done ends the stream.
func (e *EventWriter) Done() error {
	e.buffer.WriteString("data: " + done + "\n\n")
	return e.flush()
}

// Fail ends the stream with an error. Before the first event it answers with the error's own status
// instead.
func (e *EventWriter) Fail(failure *Error) error {
	if !e.started {
		e.started = true
		WriteError(e.w, failure)
		return nil
	}
	if err := e.Send(failure); err != nil {
		return err
	}
	return e.Done()
}

// flush sends what the buffer holds, and the headers before the first of it.
func (e *EventWriter) flush() error {
	if !e.started {
		e.started = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	if e.timeout > 0 {
		err := e.control.SetWriteDeadline(time.Now().Add(e.timeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("write an event: %w", err)
		}
	}
	_, err := e.buffer.WriteTo(e.w)
	e.buffer.Reset()
	if err == nil {
		err = e.control.Flush()
	}
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

// MaxEvent bounds one event that EventReader takes, in bytes.
const MaxEvent = 16 << 20

// ErrEventTooLong says that a stream held a line or an event beyond MaxEvent.
var ErrEventTooLong = errors.New("an event is longer than the limit")

// EventReader reads a stream of server-sent events, of which it takes the data alone. It serves one
// goroutine.
type EventReader struct {
	lines *bufio.Scanner
	event []byte
}

// NewEventReader makes a reader.
func NewEventReader(r io.Reader) *EventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxEvent)
	return &EventReader{lines: lines}
}

// Next returns the data of the next event, valid until the following call. It returns io.EOF after
// [DONE], and io.ErrUnexpectedEOF when the stream stopped before.
func (e *EventReader) Next() ([]byte, error) {
	e.event = e.event[:0]
	has := false
	for e.lines.Scan() {
		line := e.lines.Bytes() // Without its end, be that \n or \r\n.
		if len(line) == 0 {
			if !has {
				continue
			}
			if string(e.event) == done {
				return nil, io.EOF
			}
			return e.event, nil
		}
		data, is := bytes.CutPrefix(line, []byte("data:"))
		if !is {
			continue // A comment, or a field that nothing here uses.
		}
		if has {
			e.event = append(e.event, '\n')
		}
		has = true
		e.event = append(e.event, bytes.TrimPrefix(data, []byte(" "))...)
		if len(e.event) > MaxEvent {
			return nil, ErrEventTooLong
		}
	}
	switch err := e.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, ErrEventTooLong
	case err != nil:
		return nil, fmt.Errorf("read an event: %w", err)
	}
	return nil, io.ErrUnexpectedEOF
}
