package plugins

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Options says what a host works with.
type Options struct {
	Slots     int          // most slots of the record table: longest queue + most running sequences
	Decisions int          // most entries of an answer: most running sequences + preemptions
	Log       *slog.Logger // where faults and the guests' own lines go; nil discards them
	Observer  Observer     // nil observes nothing
	Rules     Rules        // what happens when a module fails; SetRules changes it later
	// Offered is the capabilities that the engine carries out; 0 means abi.CapsOffered.
	Offered uint64

	// CacheDir keeps compiled modules from run to run; it is made with mode 0700 and not used when
	// somebody else may write to it, or when it fails. "" keeps none.
	CacheDir string
	// Compiler is the command, with its arguments, of a program that calls CompileMain: modules
	// are then compiled by it, in a process that can be limited and killed, into CacheDir, or a
	// temporary folder without one. Nil compiles in this process.
	Compiler []string
	// FaultDir is where the inputs of faults are saved, for Replay; it is made with mode 0700. ""
	// saves none, and so does one that cannot be made. Tracer is the command, with its arguments,
	// of a program that calls TraceMain: it finds the place of a trap in the module's source, for
	// the log. Nil finds none.
	FaultDir string
	Tracer   []string
}

// Spec is a module to load.
type Spec struct {
	Name, Version string // the operator's names for it; an empty version is the descriptor's
	Wasm          []byte
	Config        []byte // JSON for pol_init, opaque to the host; nil is {}
	Limits        Limits
	Reasons       map[uint16]string // words for the reason numbers of its decisions
	// For is what it is to decide beside what decides now: a module that could not is not kept, and
	// nothing has changed. "" asks for nothing.
	For Part
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
	saver   *saver      // nil: inputs are not saved
	refuses atomic.Bool // no request is to be admitted until the policy is trusted again

	// mu is held while a step is decided and while modules change place, never while one is loaded.
	mu      sync.Mutex
	rules   Rules
	modules []*generation // in the order of loading
	arrangement
	previous arrangement
	past     []Past   // oldest first, the latest one is what decides
	deciding string   // the arrangement's label
	answered *sandbox // whose answer the scheduler may be judging
	judge    abi.Judge
	shown    abi.View       // what the module that sets chunk lengths is shown
	cuts     []abi.Decision // its answer
	cutting  bool           // its answer counts in the latest step
	loads    uint64
	swaps    uint64
	step     uint64 // the latest that was decided, or not
	turn     uint64 // counts calls of Decide
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
	c := newCompiler(o.Compiler, o.CacheDir, o.Log)
	saver := newSaver(o.FaultDir, o.Tracer, o.Log)
	return &Host{
		log: o.Log, saver: saver, observer: o.Observer, rules: o.Rules.withDefaults(),
		cuts: make([]abi.Decision, 0, o.Decisions), past: make([]Past, 0, 16),
		loader: loader{slots: o.Slots, decisions: o.Decisions, offered: o.Offered, log: o.Log,
			drop: o.Observer.LogDropped, compiler: c, keeps: saver != nil},
	}, nil
}

// SetRules changes what happens when a module fails, from the next step on. A module that is set
// aside stays so for as long as it was told.
func (h *Host) SetRules(r Rules) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules = r.withDefaults()
	h.trim()
	h.admit()
}

// Admits says whether the engine may take new requests. It may not while the policy is not trusted
// and Rules.OnFault is StopAdmitting. Anybody may ask.
func (h *Host) Admits() bool { return !h.refuses.Load() }

// Close ends all modules. The host must not be used afterwards.
func (h *Host) Close() error {
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	modules := h.modules
	h.modules, h.arrangement, h.previous = nil, arrangement{}, arrangement{}
	h.answered, h.closed = nil, true
	h.mu.Unlock()
	for _, g := range modules {
		g.close()
	}
	h.closing.Wait()
	if h.saver != nil {
		h.saver.idle.Wait()
	}
	return nil
}
