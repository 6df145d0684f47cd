// Package pol is for writing scheduling policies in Go. A policy has one method, Decide; the same
// code runs as a WebAssembly module, natively inside the engine, and in unit tests.
//
//	package main
//
//	import (
//		"github.com/kvrelay/engine/abi"
//		pol "github.com/kvrelay/engine/abi/guest/go"
//	)
//
//	type mine struct{ waiting *pol.Order }
//
//	func newMine(config *pol.Config, slots int) (pol.Policy, error) {
//		return &mine{waiting: pol.NewOrder(slots)}, nil
//	}
//
//	func (m *mine) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) { … }
//
//	var _ = pol.Register("mine", "1.0.0", newMine)
//
//	func main() {}
//
// Build it by GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags='-s -w'.
// Such a module never runs main, which is why registration is a variable's initialisation.
//
// Decide should not allocate: a collection inside it costs more than the decision.
package pol

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Policy decides what a step computes. It appends to out, most important first, and keeps neither
// v nor out.
type Policy interface {
	Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error)
}

// Observer is a policy that hears what became of requests: tokens, ends, preemptions. It is
// registered with Wants(abi.CapEvents).
type Observer interface {
	Policy
	// Observe is told what happened since the last step, before the next is decided. It does not
	// keep the events.
	Observe(events []abi.Event) error
}

// State is a policy whose state is handed to the next copy of it when the operator swaps: with
// other settings, or in a newer version. It is registered with Keeps.
type State interface {
	Policy
	// Save writes the state and returns its bytes. When there are more than fit, nothing needs to
	// be written: it is asked again with more room.
	Save(to []byte) int
	// Load takes up what an earlier copy saved, in that version, before the first step. After an
	// error this one starts fresh.
	Load(from []byte, version uint16) error
}

// New makes a policy for a record table of that many slots. It reads the settings and takes all
// the memory that Decide will need.
type New func(config *Config, slots int) (Policy, error)

// Error is an error with a code of the ABI; any other error of a policy has CodeUnspecified.
type Error struct {
	Code int32 // Below 0.
	Why  string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Why, e.Code) }

// Registration names a policy that was registered.
type Registration struct {
	Name, Version string
	New           New

	wants, requires uint64
	state           uint16
}

// Wants adds capabilities (abi.Cap…) that the policy uses when it gets them.
func (r *Registration) Wants(capabilities uint64) *Registration {
	r.wants |= capabilities
	return r
}

// Requires adds capabilities without which the policy must not be loaded.
func (r *Registration) Requires(capabilities uint64) *Registration {
	r.requires |= capabilities
	return r
}

// Keeps says that the policy is a State, and which version of it Save writes, from 1.
func (r *Registration) Keeps(version uint16) *Registration {
	r.state = version
	return r.Wants(abi.CapState)
}

// Start makes the policy as the host of a module would: settings are JSON, nil means none.
func (r *Registration) Start(settings []byte, slots int) (Policy, error) {
	config := newConfig(settings)
	policy, err := r.New(config, slots)
	if config.err != nil {
		return nil, config.err
	}
	if err != nil {
		return nil, err
	}
	if err := config.end(); err != nil {
		return nil, err
	}
	return policy, nil
}

// Prefills says that there is prompt to compute, so that the request can be run with a chunk: it
// waits or is being prefilled.
func Prefills(r *abi.Record) bool {
	return r.State&(abi.StateLive|abi.StateDecoding) == abi.StateLive && r.RemainingPrefill > 0
}

// Run is the decision to compute that many tokens of a request's prompt.
func Run(slot uint32, r *abi.Record, tokens uint32) abi.Decision {
	return abi.Decision{Slot: slot, Tokens: tokens, IDLow: uint32(r.ID)}
}

// Skip is the decision to leave a request out of this step, a decoding one too.
func Skip(slot uint32, r *abi.Record) abi.Decision {
	return abi.Decision{Slot: slot, IDLow: uint32(r.ID), Action: abi.ActionSkip}
}

// Preempt is the decision to take the pages of a running request that is not pinned; it is computed
// again later. Only with abi.CapPreempt, and before the runs that it makes room for.
func Preempt(slot uint32, r *abi.Record, reason uint16) abi.Decision {
	return abi.Decision{
		Slot: slot, IDLow: uint32(r.ID), Action: abi.ActionPreemptRecompute, Reason: reason,
	}
}

// Chunks shares a step's prefill tokens among prompts.
type Chunks struct {
	Left     uint32 // Tokens left in this step.
	max      uint32
	multiple uint32
}

// ChunksOf is what a step has for prefill: its budget less what the running decodes use.
func ChunksOf(h *abi.Header) Chunks {
	return Chunks{
		Left:     h.TokenBudget - min(h.TokenBudget, h.DecodeTokens),
		max:      h.ChunkMax,
		multiple: max(h.ChunkAlign, 1),
	}
}

// Take takes the longest chunk for a prompt with this much remaining; 0: nothing fits.
func (c *Chunks) Take(remaining uint32) uint32 {
	n := min(remaining, c.max, c.Left)
	if n < remaining {
		n -= n % c.multiple
	}
	c.Left -= n
	return n
}
