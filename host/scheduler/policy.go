package scheduler

import "github.com/kvrelay/engine/abi"

// Policy decides order and chunk lengths of a step.
type Policy interface {
	// Decide appends its decisions to out and returns it. An error is a fault: the built-in policy
	// decides this step. The view is valid until Decide returns and must not be changed.
	Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error)
}

// FaultReporter is a policy that wants to know what the judge found wrong with its answer.
type FaultReporter interface {
	ReportFault(Fault)
}

// Fault classes that the scheduler itself gives; a policy's own error keeps the class it brings.
const (
	ClassBadOutput     = "bad_output"
	ClassReturnedError = "returned_error"
)

// Fault is a policy failure that made the built-in policy decide a step.
type Fault struct {
	Class  string
	Step   uint64
	Detail string
}
