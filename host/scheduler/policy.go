package scheduler

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Policy decides order and chunk lengths of a step.
type Policy interface {
	// Decide appends its decisions to out and returns it. After an error the built-in policy
	// decides this step. The view is valid until Decide returns and must not be changed.
	Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error)
}

// FaultReporter is a policy that wants to know what the judge found wrong with its answer.
type FaultReporter interface {
	ReportFault(class abi.FaultClass, detail string)
}

// Fault is an answer that broke a rule.
type Fault struct {
	Class  abi.FaultClass
	Step   uint64
	Detail string
}

// Error says all of it on one line.
func (f *Fault) Error() string {
	return fmt.Sprintf("policy: %s at step %d: %s", f.Class, f.Step, f.Detail)
}
