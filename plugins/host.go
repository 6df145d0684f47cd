package plugins

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Options says what a host works with.
type Options struct {
	Slots     int          // most slots of the record table: longest queue + most running sequences
	Decisions int          // most entries of an answer: most running sequences + preemptions
	Log       *slog.Logger // where faults and the guests' own lines go; nil discards them
	Observer  Observer     // nil observes nothing
	// Offered is the capabilities that the engine carries out; 0 means abi.CapsOffered.
	Offered uint64

	// CacheDir keeps compiled modules from run to run; it is made with mode 0700 and refused when
	// somebody else may write to it. "" keeps none.
	CacheDir string
	// Compiler is the command, with its arguments, of a program that calls CompileMain: modules
	// are then compiled by it, in a process that can be limited and killed, into CacheDir, which
	// must be set. Nil compiles in this process.
	Compiler []string
}

// Spec is a module to load.
type Spec struct {
	Name, Version string // the operator's names for it; an empty version is the descriptor's
	Wasm          []byte
	Config        []byte // JSON for pol_init, opaque to the host; nil is {}
	Limits        Limits
}

// State says where a module stands.
type State string

// The states of a loaded module.
const (
	StateReady    State = "ready"     // loaded and tried
	StateActive   State = "active"    // decides
	StateSetAside State = "set_aside" // active, but faulted too often and is not asked for a while
	StatePrevious State = "previous"  // Rollback would make it active again
)

// Status is one line of List.
type Status struct {
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	Generation uint64        `json:"generation"` // counts loads
	State      State         `json:"state"`
	Since      time.Time     `json:"since"`  // of the state
	Digest     string        `json:"digest"` // sha256 of the file, hex
	Calls      uint64        `json:"calls"`
	Faults     uint64        `json:"faults"`
	P99        time.Duration `json:"p99_ns"`               // of the latest calls
	Memory     int64         `json:"memory_bytes"`         // of the guest, after the latest call
	LastFault  string        `json:"last_fault,omitempty"` // "" if there was none
}

// MaxModules is how many modules a host keeps. To load more, unload one.
const MaxModules = 16

// Host runs policy modules.
type Host struct {
	loader   loader
	log      *slog.Logger
	observer Observer

	loading sync.Mutex // one load at a time
	closing sync.WaitGroup

	// mu is held while a step is decided and while modules change place, never while one is loaded.
	mu       sync.Mutex
	modules  []*generation // in the order of loading
	active   *generation
	previous *generation
	answered *sandbox // whose answer the scheduler may be judging
	loads    uint64
	swaps    uint64
	step     uint64 // the latest that was decided, or not
	now      time.Duration
	closed   bool
}

// New returns a host without modules: Decide answers ErrNoPolicy until one is active.
func New(o Options) (*Host, error) {
	if o.Slots <= 0 || o.Decisions <= 0 {
		return nil, fmt.Errorf("plugins: Options.Slots is %d and Options.Decisions %d; both must "+
			"be above 0", o.Slots, o.Decisions)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = silent{}
	}
	c, err := newCompiler(o.Compiler, o.CacheDir)
	if err != nil {
		return nil, err
	}
	return &Host{
		log: o.Log, observer: o.Observer,
		loader: loader{slots: o.Slots, decisions: o.Decisions, offered: o.Offered, log: o.Log,
			drop: o.Observer.LogDropped, compiler: c},
	}, nil
}

// Decide lets the active module decide one step: it brings the guest's table up to date, calls
// pol_decide and appends the answer to out[:0]. An error means that the built-in policy decides
// this step; it is a *Fault, or one of the errors above. Judging the answer is the caller's, who
// reports a broken rule with ReportFault. Only the engine's goroutine calls it.
func (h *Host) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out = out[:0]
	h.step, h.now, h.answered = v.Header.Step, time.Duration(v.Header.NowNS), nil
	g := h.active
	if g == nil {
		h.observer.Stepped(Call{Fallback: true})
		return out, ErrNoPolicy
	}
	s, err := h.ready(g)
	if err != nil {
		h.observer.Stepped(Call{Policy: g.label, Fallback: true})
		return out, err
	}
	begin := time.Now()
	decided, a, err := s.step(v, out)
	wall := time.Since(begin)
	if err != nil {
		h.observer.Stepped(Call{Policy: g.label, Fallback: true})
		return out, err
	}
	g.counts.called(wall, a.memory)
	h.observer.Stepped(Call{Policy: g.label, Fallback: a.fault != nil, Wall: wall, Fuel: a.fuel,
		FuelMax: a.limit, Memory: a.memory})
	if a.fault != nil {
		h.fault(g, a.fault, !a.keep)
		return out, a.fault
	}
	g.breaker.ok()
	h.answered = s
	return decided, nil
}

// ready returns the sandbox that decides this step, the spare if there is no other.
func (h *Host) ready(g *generation) (*sandbox, error) {
	if !g.breaker.allows(h.now) {
		if g.current != nil {
			g.current.stale = true
		}
		return nil, ErrSetAside
	}
	if g.state == StateSetAside {
		g.enter(StateActive)
	}
	if g.current == nil {
		g.current = g.takeSpare()
	}
	if g.current != nil {
		g.decided = true
		return g.current, nil
	}
	if f := g.spareFault(); f != nil {
		h.fault(g, f, false)
		return nil, f
	}
	return nil, ErrWarming
}

// fault counts and tells of a fault in a step, and throws the sandbox away.
func (h *Host) fault(g *generation, f *Fault, discard bool) {
	f.Step = h.step
	g.counts.faulted(f)
	h.log.Warn("policy fault", "policy", g.label, "class", string(f.Class), "call", f.Call,
		"step", f.Step, "detail", f.Detail)
	h.observer.Faulted(f)
	if discard {
		g.discard()
	}
	if g.breaker.fault(h.now) {
		g.enter(StateSetAside)
		h.log.Warn("policy set aside: the built-in policy decides", "policy", g.label,
			"for", g.breaker.pause)
	}
}

// ReportFault says that the answer of the last Decide broke a rule. The sandbox is thrown away as
// after a trap.
func (h *Host) ReportFault(class abi.FaultClass, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.answered
	h.answered = nil
	if s == nil || h.active == nil || h.active.current != s {
		return
	}
	h.fault(h.active, h.active.fault(class, exportDecide, "%s", detail), true)
}

// Close ends all modules. The host must not be used afterwards.
func (h *Host) Close() error {
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	modules := h.modules
	h.modules, h.active, h.previous, h.answered, h.closed = nil, nil, nil, nil, true
	h.mu.Unlock()
	for _, g := range modules {
		g.close()
	}
	h.closing.Wait()
	return nil
}
