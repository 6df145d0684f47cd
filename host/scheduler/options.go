package scheduler

import (
	"fmt"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Limits are the numbers that may change between two steps.
type Limits struct {
	// MaxSeqs is how many sequences may hold pages at once, prepared and receiving ones included.
	MaxSeqs int
	// TokenBudget is the most tokens of one step, prefill and decode.
	TokenBudget int
	// ChunkMax is the most prompt tokens of one sequence in one step; 0 means TokenBudget.
	ChunkMax int
	// ChunkAlign divides every chunk that does not end its prompt, unless a pool is too small for
	// one so long; 0 means 1.
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

// complete fills in what 0 stands for, or says what cannot be.
func (l Limits) complete() (Limits, error) {
	if l.ChunkMax == 0 {
		l.ChunkMax = l.TokenBudget
	}
	if l.MaxAdmit == 0 {
		l.MaxAdmit = l.MaxSeqs
	}
	l.ChunkAlign = max(l.ChunkAlign, 1)
	l.ChunkMax = min(l.ChunkMax, l.TokenBudget)
	switch {
	case l.MaxSeqs < 1 || l.TokenBudget < 1 || l.MaxQueue < 1:
		return l, fmt.Errorf("scheduler: max_num_seqs %d, token_budget %d, max_queue "+
			"%d: each must be 1 or more",
			l.MaxSeqs, l.TokenBudget, l.MaxQueue)
	case l.ChunkMax < l.ChunkAlign:
		return l, fmt.Errorf("scheduler: chunk_align %d is more than a chunk may have, %d",
			l.ChunkAlign, l.ChunkMax)
	case l.MaxAdmit < 0 || l.MaxPreempt < 0 || l.ReservePages < 0:
		return l, fmt.Errorf("scheduler: max_admit %d, max_preempt %d, reserve_pages "+
			"%d: none may be negative",
			l.MaxAdmit, l.MaxPreempt, l.ReservePages)
	}
	return l, nil
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
	// Window is how many tokens, itself included, a token sees in every layer, 0 for all, and Sinks
	// how many first ones it sees beside them. Pages that slid out are given back.
	Window, Sinks int
	// Drafts is the same of the models that run over the same tokens beside the main one.
	Drafts []Memory
	// Role is the instance's role, one of the abi.Role constants.
	Role uint32
	// Seed is mixed with the step's number into the seed that policies get.
	Seed uint64
	// KVBytesPerToken is the size of one token's KV over all layers of all models.
	KVBytesPerToken int
}

// StepCosts is what the engine measured and policies are told; zero means unknown.
type StepCosts struct {
	// LastStep is how long the previous step took.
	LastStep time.Duration
	// Fixed, PerToken and PerContextTokenPS (picoseconds) are a running fit of step times: a step's
	// fixed cost, that of a prefill token, and that of a token for each token of its context.
	Fixed, PerToken   time.Duration
	PerContextTokenPS uint32
	// SendBacklogBytes is KV marked for sending and not acknowledged, LinkBytesPerUS the measured
	// rate.
	SendBacklogBytes int64
	LinkBytesPerUS   uint32
	// Peers is the table of those that KV is sent to: the entry at i has the index i+1. It is valid
	// until the plan is made.
	Peers []Peer
}

// Peer is a row of the policies' peer table, so that those who fill it need not know their ABI.
type Peer = abi.Peer
