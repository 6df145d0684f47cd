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

// Answerer is a policy that says of whom its latest answer is: a name for reports, the capabilities
// that it was granted and the flags of its descriptor, both as in package abi. One that does not
// was granted chunk lengths alone and wants nothing filled.
type Answerer interface {
	Answered() (name string, granted uint64, flags uint32)
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
