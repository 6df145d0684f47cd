// Package batch is the input of one forward pass: what the scheduler planned, in the terms of the
// model. It holds no state and decides nothing.
package batch

import "github.com/kvrelay/engine/host/kvcache"

// Item is the part of one sequence that a step computes: a prompt chunk or one decode token.
type Item struct {
	// Tokens are the rows to compute; Tokens[0] stands at position Start. Where Embeds gives a row
	// its vector the token is negative and means nothing to a model.
	Tokens []int32
	Start  int
	// Embeds are the rows that come as vectors, in order, each whole.
	Embeds []Embedding
	// Pages covers positions [0, Start+len(Tokens)). The slots of the new tokens are written. A
	// page is kvcache.None where the model's window hides all of it from position Start on.
	Pages []kvcache.PageID
	// Logits is how many of the last rows need logits: 0 in the middle of a prompt and for remote
	// sends, 1 where a token will be sampled. A batch of zeros computes no final norm and no LM
	// head.
	Logits int
	// Chooser may be set where Logits is 1, and may spare the model the row.
	Chooser Chooser
}

// Embedding is a run of positions that enter the first layer as vectors in place of tokens: a part
// of a prompt that was embedded elsewhere. It is computed in one step or not at all, since a model
// may have been trained to see it as one.
type Embedding struct {
	// Start is the position of the first of Rows vectors, in its sequence.
	Start, Rows int
	// Values are the vectors, one after another, each as wide as the model's hidden state. Nobody
	// changes them.
	Values []float32
	// Digest names the vectors and their shape: equal digests are equal vectors.
	Digest [32]byte
}

// End is the position after the last vector.
func (e *Embedding) End() int { return e.Start + e.Rows }

// Copy says that the first Tokens slots of page From are copied to page To before the pass: the
// tail page of a fork.
type Copy struct {
	From, To kvcache.PageID
	Tokens   int
}

// Batch is one forward pass. Items keep their order; so do the rows of logits that come back, nil
// where the item's Chooser has chosen.
type Batch struct {
	Items  []Item
	Copies []Copy
	// LayerDone, when set, is called after the KV append of each layer and before its attention,
	// so that a transfer may send that layer while the next computes.
	LayerDone func(layer int)
}

// Rows is the number of tokens the pass computes.
func (b *Batch) Rows() int {
	rows := 0
	for i := range b.Items {
		rows += len(b.Items[i].Tokens)
	}
	return rows
}
