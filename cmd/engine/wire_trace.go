package main

import (
	"errors"
	"io"
	"time"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/trace"
)

// traces are where an instance records what happens: the ring for `engine trace`, and spans for a
// collector. Either may be nil, which records nothing.
type traces struct {
	ring   *trace.Ring
	tracer *trace.Tracer
}

// openTraces starts what the configuration asks for.
func (i *instance) openTraces() (err error) {
	c := i.cfg.Telemetry
	i.traces.ring = trace.NewRing(c.TraceEvents)
	if c.OTLP == "" {
		return nil
	}
	i.traces.tracer, err = trace.NewTracer(trace.TracerOptions{Endpoint: c.OTLP, Version: release,
		Log: i.log, Resource: []trace.Attr{
			{Key: "service.name", Value: "engine"},
			{Key: "service.version", Value: release},
			{Key: "service.instance.id", Value: i.cfg.NodeName()},
			{Key: "engine.role", Value: string(i.cfg.Node.Role)},
		}})
	return err
}

// attach makes an engine tell what happens, by a clock of which the time of day is known.
func (t *traces) attach(o *engine.Options) {
	if t == nil || t.ring == nil && t.tracer == nil {
		return
	}
	zero := time.Now()
	o.Clock = func() time.Duration { return time.Since(zero) }
	o.Trace = t.happened(zero)
}

// happened records what an engine tells. zero is when its clock began.
func (t *traces) happened(zero time.Time) func(engine.Happening) {
	return func(h engine.Happening) {
		at := zero.Add(h.At)
		t.ring.Add(trace.Event{Name: h.Name, Track: h.Request, At: at, Took: h.Took, Note: h.Note,
			Tokens: h.Tokens})
		switch h.Name {
		case engine.HappenQueue, engine.HappenPolicy, engine.HappenPrefill, engine.HappenTransfer,
			engine.HappenDecode:
			t.tracer.Child(h.Traceparent, spanOf(h, zero))
		}
	}
}

func spanOf(h engine.Happening, zero time.Time) trace.Finished {
	at := zero.Add(h.At)
	f := trace.Finished{Name: h.Name, Begin: at, End: at.Add(h.Took)}
	if h.Tokens > 0 {
		f.Attrs = append(f.Attrs, trace.Attr{Key: "engine.tokens", Value: h.Tokens})
	}
	if h.Note != "" {
		f.Attrs = append(f.Attrs, trace.Attr{Key: "engine.note", Value: h.Note})
	}
	for _, c := range h.Chunks {
		f.Moments = append(f.Moments, trace.Moment{Name: "chunk", At: zero.Add(c.At),
			Attrs: []trace.Attr{{Key: "engine.tokens", Value: c.Tokens}}})
	}
	return f
}

// processName is how a timeline names an instance.
func processName(cfg *config.Config) string {
	return cfg.NodeName() + " · " + string(cfg.Node.Role)
}

// errNoEvents says how to get some.
var errNoEvents = errors.New("no events are kept: telemetry.trace_events is 0")

// traceDocument writes the latest events for Perfetto and Chrome.
func (i *instance) traceDocument(w io.Writer) error {
	if i.traces.ring == nil {
		return errNoEvents
	}
	events, _ := i.traces.ring.Events()
	return trace.WriteChrome(w, processName(i.cfg), events)
}
