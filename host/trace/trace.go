// Package trace keeps what happened when: a ring of events that shows as a timeline in Perfetto or
// Chrome, and spans of OpenTelemetry that one trace id ties together across instances.
//
// What always holds:
//
//  1. An event costs the same however many came before, and a ring never grows: the oldest events
//     make room for new ones.
//  2. Nobody waits for a collector: spans beyond a bounded queue are dropped and counted.
//  3. A nil *Ring and a nil *Tracer do nothing, so callers need not ask whether one is there.
package trace

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Event is something that happened to a request, or on the track of the loop itself.
type Event struct {
	// Name says what; Track is the request's id, "" the instance itself.
	Name, Track string
	// At is when it began, Took how long it lasted; 0 is a moment.
	At   time.Time
	Took time.Duration
	// Note is a word more, Tokens how many tokens it was about; both may be zero.
	Note   string
	Tokens int
}

// Ring holds the latest events.
type Ring struct {
	mu     sync.Mutex
	events []Event
	next   int
	full   bool
	total  uint64
}

// NewRing returns a ring of so many events; nil, which keeps none, for 0 or less.
func NewRing(size int) *Ring {
	if size <= 0 {
		return nil
	}
	return &Ring{events: make([]Event, size)}
}

// maxNote bounds a note, in bytes.
const maxNote = 160

// Add puts an event in, in the place of the oldest one when the ring is full.
func (r *Ring) Add(e Event) {
	if r == nil {
		return
	}
	e.Note = e.Note[:min(len(e.Note), maxNote)]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[r.next] = e
	r.next++
	r.total++
	if r.next == len(r.events) {
		r.next, r.full = 0, true
	}
}

// Events returns what the ring holds, oldest first, and how many came in all.
func (r *Ring) Events() (held []Event, total uint64) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		held = append(held, r.events[r.next:]...)
	}
	return append(held, r.events[:r.next]...), r.total
}

// chromeEvent is one line of the Trace Event Format, which Perfetto and chrome://tracing read.
// Times are microseconds.
type chromeEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	Time  float64        `json:"ts"`
	Took  *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteChrome writes the events as one JSON document, a process named so with a thread for each
// request, in the order in which requests came. Times count from 1970, so that documents of several
// instances on one clock line up.
func WriteChrome(w io.Writer, process string, events []Event) error {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return a.At.Compare(b.At) })
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	_, _ = out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[` + "\n") // Flush tells.
	write := func(first bool, e chromeEvent) {
		if !first {
			_, _ = out.WriteString(",")
		}
		_ = lines.Encode(e)
	}
	write(true, named("process_name", process, 0))
	tracks := map[string]int{"": 0}
	write(false, named("thread_name", "loop", 0))
	for _, e := range events {
		if _, known := tracks[e.Track]; !known {
			tracks[e.Track] = len(tracks)
			write(false, named("thread_name", e.Track, tracks[e.Track]))
		}
		write(false, chromeOf(e, tracks[e.Track]))
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// named says what a process or a thread is called.
func named(what, name string, tid int) chromeEvent {
	return chromeEvent{Name: what, Phase: "M", PID: 1, TID: tid, Args: map[string]any{"name": name}}
}

func chromeOf(e Event, tid int) chromeEvent {
	c := chromeEvent{Name: e.Name, Phase: "i", Time: micros(e.At.UnixNano()), PID: 1, TID: tid,
		Scope: "t"}
	if e.Took > 0 {
		took := micros(e.Took.Nanoseconds())
		c.Phase, c.Took, c.Scope = "X", &took, ""
	}
	if e.Note != "" || e.Tokens != 0 {
		c.Args = map[string]any{}
	}
	if e.Note != "" {
		c.Args["note"] = e.Note
	}
	if e.Tokens != 0 {
		c.Args["tokens"] = e.Tokens
	}
	return c
}

// micros are nanoseconds as microseconds, with three decimals.
func micros(ns int64) float64 {
	const thousand = 1000
	f, _ := strconv.ParseFloat(strconv.FormatInt(ns/thousand, 10)+"."+
		strconv.FormatInt(thousand+ns%thousand, 10)[1:], 64)
	return f
}
