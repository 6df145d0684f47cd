package engine

import (
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/transfer"
)

// Heard takes the events of both ends of the transfer. It never blocks.
func (e *Engine) Heard(event transfer.Event) {
	e.inbox.put(func() {
		e.options.Watch.Transfer(event)
		if event.Direction == transfer.Sending {
			e.hearSend(event)
		} else {
			e.hearReceive(event)
		}
	})
}

func (e *Engine) hearSend(event transfer.Event) {
	r := e.sends[event.ID]
	if r == nil {
		return
	}
	if event.Kind != transfer.Opened {
		e.peers.settle(r.send, event)
	}
	switch event.Kind {
	case transfer.Opened:
		e.queueSend(r, event.From)
	case transfer.Done:
		e.scheduler.Acknowledge(r.id)
		e.tellTransfer(r, event)
		info, _ := e.scheduler.Info(r.id)
		e.endSend(r, generation.Sent{Tokens: r.send.window.Len(), Cached: info.Cached,
			Bytes: event.Bytes, Elapsed: event.Elapsed}, nil)
	case transfer.Failed:
		if r.send.cause == nil { // Else it was given up here, by whom it concerns.
			e.warnOf(event, r)
		}
		e.endSend(r, generation.Sent{}, transferError(event.Err))
	}
}

func (e *Engine) hearReceive(event transfer.Event) {
	if event.Kind == transfer.Fenced {
		if id, ok := e.fencing[event.ID]; ok {
			delete(e.fencing, event.ID)
			must(e.scheduler.Release(id))
		}
		return
	}
	r := e.leases[event.ID]
	if r == nil {
		return
	}
	res := r.reservation
	switch event.Kind {
	case transfer.Opened:
		res.writing, res.failed = true, nil
		e.scheduler.SetLease(r.id, 0)
		_ = e.scheduler.Receiving(r.id) // A second writer finds it receiving already.
	case transfer.Delivered:
		res.writing, res.delivered = false, true
		e.tellTransfer(r, event)
		r.report.BytesSent, r.report.Transfer = event.Bytes, event.Elapsed
		must(e.scheduler.Delivered(r.id, res.end))
		e.leased(r)
		e.resolveStart(r)
		e.resolveCommit(r)
	case transfer.Failed:
		res.writing, res.failed = false, event.Err
		e.warnOf(event, r)
		e.tellTransfer(r, event)
		e.leased(r)
		e.resolveStart(r)
		e.resolveCommit(r)
	case transfer.Expired:
		e.expire(r)
	}
}

// warnOf tells the operator of a transfer that failed, with the cause that its client or the router
// may not get to see. What one end gave up on purpose is no failure.
func (e *Engine) warnOf(event transfer.Event, r *request) {
	if event.Err.Reason == transfer.Cancelled {
		return
	}
	e.options.Log.Warn("a transfer of keys and values failed", "id", r.ask.ID, "direction",
		event.Direction.String(), "bytes", event.Bytes, "error", event.Err)
}

// expire ends a reservation that nobody wrote to or started in time. What was delivered stays in
// the prefix cache.
func (e *Engine) expire(r *request) {
	delete(e.leases, r.reservation.lease)
	r.reservation.lease = "" // The receiver has dropped it already.
	if r.reservation.delivered {
		e.keep(r)
		return
	}
	e.drop(r, generation.Errorf(generation.CodeReservationNotFound,
		"reservation %q expired: nobody wrote to it or started it in time", r.ask.ID))
}
