package plugins

import (
	"errors"
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Errors of Decide that are no fault of a module: the built-in policy decides, nothing is counted.
var (
	// ErrNoPolicy says that no module is active.
	ErrNoPolicy = errors.New("plugins: no policy module is active")
	// ErrSetAside says that the active module faulted too often and is not asked for a while.
	ErrSetAside = errors.New("plugins: the policy module is set aside after repeated faults")
	// ErrProbation says that the active module decided and was judged after it had been set aside;
	// its answer does not count yet.
	ErrProbation = errors.New("plugins: the policy module is on probation after repeated faults")
	// ErrWarming says that the sandbox faulted and its spare is not ready yet.
	ErrWarming = errors.New("plugins: the policy module's spare sandbox is not ready yet")
	// ErrTable says that the step's record table does not fit the one agreed on at load.
	ErrTable = errors.New("plugins: the record table is larger than Options.Slots, or malformed")
)

// errRestore says that a saved input does not fit the module that it is given to.
var errRestore = errors.New("plugins: the saved state does not fit this module")

// Fault is what a module did wrong, at load or in a step.
type Fault struct {
	Class  abi.FaultClass `json:"class"`
	Policy string         `json:"policy"` // NAME@VERSION
	Step   uint64         `json:"step"`   // the header's step; 0 at load
	Call   string         `json:"call"`   // the export that was running; "" when none was
	Code   int32          `json:"code"`   // what it returned, of returned_error and load_init
	Detail string         `json:"detail"` // what happened, and the guest's own words if any
	Fuel   int64          `json:"fuel"`   // used in the step; 0 at load
	Limit  int64          `json:"limit"`  // of pol_decide in that step
}

// Error says all of it on one line.
func (f *Fault) Error() string {
	s := fmt.Sprintf("policy %s: %s", f.Policy, f.Class)
	if f.Call != "" {
		s += " in " + f.Call
	}
	if f.Step != 0 {
		s += fmt.Sprintf(" at step %d", f.Step)
	}
	return s + ": " + f.Detail
}
