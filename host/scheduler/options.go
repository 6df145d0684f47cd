package scheduler

import "time"

// Limits are the numbers that may change between two steps.
type Limits struct {
	// MaxSeqs is how many sequences may hold pages at once, prepared and receiving ones included.
	MaxSeqs int
	// TokenBudget is the most tokens of one step, prefill and decode.
	TokenBudget int
	// ChunkMax is the most prompt tokens of one sequence in one step; 0 means TokenBudget.
	ChunkMax int
	// ChunkAlign divides every chunk that does not end its prompt; 0 means 1.
	ChunkAlign int
	// MaxAdmit is how many sequences may be admitted in one step; 0 means MaxSeqs.
	MaxAdmit int
	// MaxPreempt is how many preemptions a policy may order in one step.
	MaxPreempt int
	// ReservePages stay free at an admission, beyond one page for each sequence that holds pages,
	// unless none does.
	ReservePages int
	// MaxQueue is how many requests may wait.
	MaxQueue int
	// HardAge is how long a request waits before the host puts it first; 0 means never.
	HardAge time.Duration
	// MaxIdleSteps is how many steps in a row may leave a running sequence out before the host puts
	// it first; 0 means any number.
	MaxIdleSteps int
	// MaxEmptySteps is how many answers in a row may leave fitting work aside before the next such
	// answer is a fault; 0 means any number.
	MaxEmptySteps int
}

// Options are what a scheduler is made with.
type Options struct {
	Limits
	// PageSize is the token slots in a page, Pages the size of the pool.
	PageSize, Pages int
	// MaxModelLen is the most tokens of one request, prompt and output.
	MaxModelLen int
	// PrefixPages is how many unreferenced pages the prefix cache may keep: -1 whatever is free, 0
	// none, which also turns matching off.
	PrefixPages int
	// Role is the instance's role, one of the abi.Role constants.
	Role uint32
	// Seed is mixed with the step's number into the seed that policies get.
	Seed uint64
	// KVBytesPerToken is the size of one token's KV over all layers.
	KVBytesPerToken int
}

// StepCosts is what the engine measured and policies are told; zero means unknown.
type StepCosts struct {
	LastStep          time.Duration
	Fixed             time.Duration
	PerToken          time.Duration
	PerContextTokenPS uint32
	SendBacklogBytes  int64
	LinkBytesPerUS    uint32
}
