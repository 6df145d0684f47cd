package plugins

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Options says what a host works with.
type Options struct {
	Slots     int          // most slots of the record table: longest queue + most running sequences
	Decisions int          // most entries of an answer: most running sequences + preemptions
	Log       *slog.Logger // where faults and the guests' own lines go; nil discards them
	Observer  Observer     // nil observes nothing

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
	Name, Version string
	Generation    uint64 // counts loads
	State         State
	Since         time.Time // of the state
	Digest        string    // sha256 of the file, hex
	Calls, Faults uint64
	P99           time.Duration // of the latest calls
	Memory        int64         // bytes of the guest's memory
	LastFault     string        // "" if there was none
}

// Host runs policy modules.
type Host struct{}

// New returns a host without modules: Decide answers ErrNoPolicy until one is active.
func New(o Options) (*Host, error) { return nil, errors.New("plugins: not built yet") }

// Load checks, meters, compiles, links, initialises and tries a module, and keeps it ready under
// its name. A module of that name that is neither active nor previous is forgotten. An error that
// is the module's fault is a *Fault.
func (h *Host) Load(ctx context.Context, s Spec) (Status, error) { return Status{}, nil }

// Activate makes the module last loaded under that name decide from the next step on.
func (h *Host) Activate(name string) (Swap, error) { return Swap{}, nil }

// Rollback makes the module active again that was active before.
func (h *Host) Rollback() (Swap, error) { return Swap{}, nil }

// Unload forgets a module that is not active.
func (h *Host) Unload(name string) error { return nil }

// List returns all modules, in the order of loading.
func (h *Host) List() []Status { return nil }

// Active returns the active module; false when there is none.
func (h *Host) Active() (Status, bool) { return Status{}, false }

// Decide lets the active module decide one step: it brings the guest's table up to date, calls
// pol_decide and appends the answer to out[:0]. An error means that the built-in policy decides
// this step; it is a *Fault, or one of the errors above. Judging the answer is the caller's, who
// reports a broken rule with ReportFault. Only the engine's goroutine calls it.
func (h *Host) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) { return nil, nil }

// ReportFault says that the answer of the last Decide broke a rule. The sandbox is thrown away as
// after a trap.
func (h *Host) ReportFault(class abi.FaultClass, detail string) {}

// Close ends all modules. The host must not be used afterwards.
func (h *Host) Close() error { return nil }
