package engine

import (
	"maps"
	"slices"

	"github.com/kvrelay/engine/host/generation"
)

// Lost is the answer of an engine whose device is gone, which computes nothing any more; nil: it
// has one. It asks nothing of the loop.
func (e *Engine) Lost() error { return e.refuseLost() }

// refuseLost is the answer to what comes after the device was lost.
func (e *Engine) refuseLost() error {
	if lost := e.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// lose ends all requests: keys and values have gone with the device, so none of them can go on
// here. The loop goes on and says so.
func (e *Engine) lose(cause error) {
	lost := generation.Errorf(generation.CodeDeviceLost,
		"the instance has lost its device and computes nothing until it is restarted: %v", cause)
	e.lost.Store(lost)
	for _, id := range slices.Sorted(maps.Keys(e.requests)) {
		e.drop(e.requests[id], lost)
	}
	e.scheduler.Reset() // What the prefix cache names is gone too.
	e.options.Log.Error("the device is lost; restart the instance", "error", cause)
}
