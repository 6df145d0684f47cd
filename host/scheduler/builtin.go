package scheduler

import "github.com/kvrelay/engine/abi"

// FCFS is the built-in policy: first come, first served, ties by ID.
type FCFS struct{}

// Decide implements Policy.
func (f *FCFS) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) { panic("not built") }
