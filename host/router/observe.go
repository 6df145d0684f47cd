package router

import (
	"cmp"
	"time"

	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/trace"
)

// calling begins the span of a call to an instance. The function ends it, and puts the call in the
// ring of events.
func (f *forward) calling(name string, role placement.Role) (*trace.Span, func(error)) {
	instance, begun := f.ticket.Instance(role), time.Now()
	span := f.router.options.Tracer.Start(name, trace.Client, f.ask.Traceparent)
	span.Set("engine.instance", instance)
	span.Set("engine.instance.role", role.String())
	span.Set("engine.attempt", f.attempts)
	return span, func(err error) {
		note, failure := instance, ""
		if err != nil {
			failure = err.Error()
			note += ": " + failure
		}
		span.End(failure)
		f.router.options.Ring.Add(trace.Event{Name: name, Track: f.track(), At: begun,
			Took: time.Since(begun), Note: note})
	}
}

// track is the id under which events show the request.
func (f *forward) track() string {
	return cmp.Or(f.ask.RequestID, f.ask.ID, f.id)
}

// moved tells that the request goes on, after an error on the instance that it had, where it was
// placed now.
func (f *forward) moved(err error) {
	f.router.options.Ring.Add(trace.Event{Name: "goes elsewhere", Track: f.track(),
		At: time.Now(), Note: err.Error(), Tokens: len(f.emitted)})
	f.router.options.Watch.Retried(reasonOf(err))
	next, text := f.ticket.Instance(placement.Decode), "request goes on on another instance"
	if next == f.decode {
		text = "request is tried again on the same instance"
	}
	f.router.options.Log.Warn(text, "id", f.id, "instance", f.decode, "next", next,
		"tokens", len(f.emitted), "error", err)
}
