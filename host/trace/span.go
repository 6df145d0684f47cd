package trace

import (
	"sync"
	"time"
)

// Kind is which side of a call a span is.
type Kind int

// The kinds, with the numbers of OTLP.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
)

// Attr is a named value: a string, a bool, an int, or a float64.
type Attr struct {
	Key   string
	Value any
}

// Moment is an event of a span.
type Moment struct {
	Name  string
	At    time.Time
	Attrs []Attr
}

// Finished is a span that has ended. Parent is zero where it began the trace.
type Finished struct {
	Name       string
	Kind       Kind
	Place      Context
	Parent     [8]byte
	Begin, End time.Time
	Attrs      []Attr
	Moments    []Moment
	// Failure says what went wrong; "" when nothing did.
	Failure string
}

// Span is a span that goes on. Its methods may be called from several goroutines, and on nil.
type Span struct {
	tracer *Tracer
	pass   string // what is handed on where nothing is recorded

	mu    sync.Mutex
	data  Finished
	ended bool
}

// Start begins a span below the place that a traceparent names; what is none, "" included, begins a
// trace. Without a tracer nothing is recorded, and the place is handed on as it came.
func (t *Tracer) Start(name string, kind Kind, parent string) *Span {
	at, ok := Parse(parent)
	if t == nil || ok && !at.Sampled {
		if !ok {
			parent = ""
		}
		return &Span{pass: parent}
	}
	s := &Span{tracer: t, data: Finished{Name: name, Kind: kind, Place: child(at, ok),
		Begin: time.Now()}}
	if ok {
		s.data.Parent = at.Span
	}
	return s
}

// Context is the traceparent for what happens below the span; "" where there is no trace.
func (s *Span) Context() string {
	if s == nil || s.tracer == nil {
		if s == nil {
			return ""
		}
		return s.pass
	}
	return s.data.Place.String()
}

// Rename gives the span a better name.
func (s *Span) Rename(name string) {
	if s == nil || s.tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.Name = name
}

// Set notes a value.
func (s *Span) Set(key string, value any) {
	if s == nil || s.tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.Attrs = append(s.data.Attrs, Attr{key, value})
}

// Note adds an event.
func (s *Span) Note(name string, attrs ...Attr) {
	const most = 128
	if s == nil || s.tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.data.Moments) < most {
		s.data.Moments = append(s.data.Moments, Moment{name, time.Now(), attrs})
	}
}

// End ends the span, with what went wrong or "". Only the first call counts.
func (s *Span) End(failure string) {
	if s == nil || s.tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.data.End, s.data.Failure = time.Now(), failure
	s.tracer.add(s.data)
}

// Child records a span of the past below the place that a traceparent names; without one nothing
// is. Place, Parent and Kind are filled in.
func (t *Tracer) Child(parent string, f Finished) {
	at, ok := Parse(parent)
	if t == nil || !ok || !at.Sampled {
		return
	}
	f.Kind, f.Place, f.Parent = Internal, child(at, true), at.Span
	t.add(f)
}
