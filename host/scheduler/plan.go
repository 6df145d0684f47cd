package scheduler

import (
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// Plan is what one step computes. It is valid until the next Plan; its slices are reused.
type Plan struct {
	// Step is the number of the step, from 1.
	Step uint64
	// Batch is the input of the model. It may hold copies and no items; it must be run then, too.
	Batch batch.Batch
	// Samples names the sequence of each row of logits, in order. Commit takes one token for each.
	Samples []SequenceID
	// Chunks says whose each item of the batch is.
	Chunks []Chunk
	// Sends are the remote sends with a chunk in this step.
	Sends []Send
	// Grants are the reservations made in this step. If the run fails they are void.
	Grants []Grant
	// Preempted lost their pages in this step and wait again.
	Preempted []SequenceID
	// Failed could never get pages: they are finished with ReasonError. Their pages, if any were
	// being sent, wait for SendReleased.
	Failed []SequenceID
	// Decision tells how the policy fared.
	Decision Decision
	// Decodes and PrefillTokens count the rows of the batch.
	Decodes, PrefillTokens int
}

// Empty reports whether there is nothing to run.
func (p *Plan) Empty() bool { return len(p.Batch.Items) == 0 && len(p.Batch.Copies) == 0 }

// Chunk is the part [Start, End) of a sequence that an item computes.
type Chunk struct {
	ID         SequenceID
	Start, End int
	// Decode is a generated token, otherwise it is prefill.
	Decode bool
}

// Send is the part of a remote send that becomes ready in this step.
type Send struct {
	ID SequenceID
	// Cached is the run of positions whose KV was there already and belongs to the window; it is
	// sent page to page. Not empty in the first chunk only.
	CachedStart, CachedEnd int
	// Fresh is the run of positions that this step computes and that belongs to the window; each
	// layer of it may be sent when LayerDone was called for it.
	FreshStart, FreshEnd int
	// Pages is the sequence's page table. It stays as it is, and pinned, until SendReleased.
	Pages []kvcache.PageID
	// Last is set with the chunk that ends the window.
	Last bool
}

// Grant is a reservation: pages for positions [Matched, End) of a prepared prompt.
type Grant struct {
	ID SequenceID
	// Matched tokens were found in the prefix cache and need not be sent.
	Matched, End int
	// Segments is [nseg, pos, len, ...]: the k-th slot over the segments belongs to position
	// Matched+k; pos = page*PageSize + offset. Runs that touch are merged, also across pages.
	Segments []int
	// Pages is the sequence's page table, for [0, End).
	Pages []kvcache.PageID
}

// Decision counts what became of the policy's answer in one step.
type Decision struct {
	// Asked is false when there was nothing to decide.
	Asked bool
	// Entries is how many decisions the policy gave; Trimmed how many ran with fewer tokens than
	// asked for, Refused how many could not run.
	Entries, Trimmed, Refused int
	// Forced is how many sequences the starvation guard put first.
	Forced int
	// Fallback is set when the built-in policy decided; Fault says why.
	Fallback bool
	Fault    Fault
}
