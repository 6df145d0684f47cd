package sim

import (
	"slices"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/host/transfer"
)

// Bug is a fault that is planted around the real parts, where they meet the world: a run that has
// one must end with a violation. The parts themselves know nothing of it.
type Bug uint8

// The bugs.
const (
	NoBug Bug = iota
	// FreedEarly: a page of a running sequence loses a reference.
	FreedEarly
	// SwappedPage: two slots of a reservation change places in the lease.
	SwappedPage
	// EarlyAck: the delivery is acknowledged before the last frame.
	EarlyAck
	// LeaseNotRenewed: the lease runs out under a writer.
	LeaseNotRenewed
	// ChunkOffByOne: a chunk leaves out its last token.
	ChunkOffByOne
	// StaleEpoch: the writer of a released lease goes on, and is said to be fenced.
	StaleEpoch
	// DoubleRelease: pages that were sent are given back twice.
	DoubleRelease
	// MatchTooLong: one token more than matched is taken as computed.
	MatchTooLong
	// MissingFence: a release hands out pages whose writer lives.
	MissingFence
	// WrongBegin: a lease begins one position late.
	WrongBegin
	// LostAck: the sender never hears of the acknowledgement.
	LostAck
	// MissingCopy: the tail page of a fork is not copied.
	MissingCopy
	// DeviceIgnored: a step that failed counts as computed.
	DeviceIgnored
	// WrongLayer: keys and values of one layer are written to another.
	WrongLayer
	// DraftIdle: a model beside the main one computes nothing.
	DraftIdle
	// TokenTwice: a sequence that was preempted streams its last token again.
	TokenTwice
	bugs
)

func (b Bug) String() string {
	return [...]string{"none", "page freed early", "swapped page", "ack before the last frame",
		"lease not renewed", "chunk off by one", "stale epoch accepted", "double release",
		"prefix match one too long", "missing fence", "wrong begin", "lost ack", "missing copy",
		"device failure ignored", "wrong layer", "draft left behind",
		"token streamed twice"}[b]
}

// Bugs lists all that can be planted.
func Bugs() []Bug {
	var all []Bug
	for b := NoBug + 1; b < bugs; b++ {
		all = append(all, b)
	}
	return all
}

// batch changes what the model computes.
func (b Bug) batch(input *batch.Batch, plan *scheduler.Plan, i *instance) {
	switch b {
	case MissingCopy:
		input.Copies = nil
	case ChunkOffByOne:
		for k := range input.Items {
			item := &input.Items[k]
			if n := len(item.Tokens); n > 1 && item.Logits == 0 {
				item.Tokens = item.Tokens[:n-1]
				item.Pages = item.Pages[:i.world.pagesFor(item.Start+n-1)]
			}
		}
	case MatchTooLong:
		for k := range input.Items {
			item := &input.Items[k]
			info, _ := i.scheduler.Info(plan.Chunks[k].ID)
			if item.Start > 0 && item.Start == info.Cached && len(item.Tokens) > 1 {
				item.Tokens, item.Start = item.Tokens[1:], item.Start+1
			}
		}
	case FreedEarly:
		for k := range input.Items {
			if pages := input.Items[k].Pages; plan.Chunks[k].Decode && pages[0] != kvcache.None {
				i.scheduler.Pool(0).Release(pages[0])
				return
			}
		}
	}
}

// reservation changes what a lease gives the right to write.
func (b Bug) reservation(r transfer.Reservation) transfer.Reservation {
	slots := slotsOf(r.Segments[0])
	switch {
	case b == SwappedPage && len(slots) > 1 && slots[0] >= 0 && slots[len(slots)-1] >= 0:
		slots[0], slots[len(slots)-1] = slots[len(slots)-1], slots[0]
		r.Segments = slices.Clone(r.Segments)
		r.Segments[0] = transfer.Compress(slots)
	case b == WrongBegin && len(slots) > 1:
		r.Window.Begin++
		r.Segments = slices.Clone(r.Segments)
		for model, segments := range r.Segments {
			r.Segments[model] = transfer.Compress(slotsOf(segments)[1:])
		}
	}
	return r
}

// reserved changes what the front is told of a reservation.
func (b Bug) reserved(r generation.Reservation) generation.Reservation {
	if b == WrongBegin && r.End-r.Matched > 1 {
		r.Matched++
	}
	return r
}

// slotsOf lists the slots of segments, -1 for what is not sent.
func slotsOf(segments []transfer.Segment) []int {
	var slots []int
	for _, s := range segments {
		for k := range s.Count {
			if s.Slot < 0 {
				k = 0
			}
			slots = append(slots, s.Slot+k)
		}
	}
	return slots
}

// heard changes which events of the transfer the engine is told.
func (b Bug) heard(event transfer.Event, i *instance) []transfer.Event {
	switch {
	case b == LostAck && event.Kind == transfer.Done:
		return nil
	case b == EarlyAck && event.Kind == transfer.Opened && event.Direction == transfer.Receiving:
		early := event
		early.Kind = transfer.Delivered
		return []transfer.Event{event, early}
	case b == EarlyAck && event.Kind == transfer.Delivered:
		return nil
	case b == DoubleRelease && event.Kind == transfer.Done:
		if pages := i.sending[event.ID]; len(pages) > 0 && pages[0] != kvcache.None {
			i.scheduler.Pool(0).Release(pages[0])
		}
	}
	return []transfer.Event{event}
}

// tokens changes what a reader gets.
func (b Bug) tokens(tokens []int32, preempted bool) []int32 {
	if b == TokenTwice && preempted && len(tokens) > 0 {
		return slices.Insert(tokens, 0, tokens[0])
	}
	return tokens
}
