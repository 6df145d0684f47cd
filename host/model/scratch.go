package model

import (
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/batch"
)

// scratch is the memory of a forward pass, allocated once and used by every step.
type scratch struct {
	hidden, narrow gpu.Buffer // the residual stream; that of the rows with logits in the last layer
	x              gpu.Buffer // what a norm or the attention gives
	qkv            gpu.Buffer
	gateUp, mlp    gpu.Buffer
	logits         gpu.Buffer // of headRows rows
	scores, expert gpu.Buffer // the router's; rows of one expert, first in and then out
	routing        routing

	// The batch as the kernels want it.
	tokens, positions, slots []int32
	tokenRows, vectorRows    []int32 // where some come as vectors: the rows of either kind
	vectors, zeros, ones     []float32
	wanted                   []int32 // rows with logits, ascending
	block                    []int32 // those of one block of the head
	sequences                []gpu.AttentionSequence
	pages                    []int32 // of all sequences, one after another
	copies                   []gpu.KVCopy

	choosers []batch.Chooser // of the wanted rows; nil: all logits are wanted
	chosen   []bool          // of the wanted rows: their choosers chose
	best     gpu.TopKArgs    // of one block of the head
	host     []float32       // logits of all wanted rows
	rows     [][]float32
}

func newScratch(device gpu.Device, n sizes) (*scratch, error) {
	s := &scratch{}
	for _, b := range []struct {
		to       *gpu.Buffer
		elements int
	}{
		{&s.hidden, n.hidden}, {&s.narrow, n.narrow}, {&s.x, n.x}, {&s.qkv, n.qkv},
		{&s.gateUp, n.gateUp}, {&s.mlp, n.mlp}, {&s.logits, n.logits},
		{&s.scores, n.scores}, {&s.expert, n.expert},
	} {
		var err error
		if *b.to, err = device.Alloc(b.elements); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// prepare lays the batch out for the kernels.
func (s *scratch) prepare(b *batch.Batch, pageSize int) {
	s.tokens, s.positions, s.slots = s.tokens[:0], s.positions[:0], s.slots[:0]
	s.wanted, s.sequences, s.copies = s.wanted[:0], s.sequences[:0], s.copies[:0]
	s.tokenRows, s.vectorRows, s.vectors = s.tokenRows[:0], s.vectorRows[:0], s.vectors[:0]
	clear(s.choosers) // The last batch's are not kept.
	s.choosers = s.choosers[:0]
	some := mixed(b)
	total := 0
	for i := range b.Items {
		total += len(b.Items[i].Pages)
	}
	s.pages = slices.Grow(s.pages[:0], total) // no growth below: sequences keep parts of it
	for i := range b.Items {
		item := &b.Items[i]
		first, rows := len(s.positions), len(item.Tokens)
		from := len(s.pages)
		for _, p := range item.Pages {
			s.pages = append(s.pages, int32(p))
		}
		pages := s.pages[from:]
		s.addRows(item, first, some)
		for position := item.Start; position < item.Start+rows; position++ {
			s.positions = append(s.positions, int32(position))
			page, slot := pages[position/pageSize], int32(position%pageSize)
			s.slots = append(s.slots, page*int32(pageSize)+slot)
		}
		s.sequences = append(s.sequences,
			gpu.AttentionSequence{FirstRow: first, Rows: rows, Start: item.Start, Pages: pages})
		for row := first + rows - item.Logits; row < first+rows; row++ {
			s.wanted = append(s.wanted, int32(row))
			s.choosers = append(s.choosers, item.Chooser)
		}
	}
	for _, c := range b.Copies {
		s.copies = append(s.copies,
			gpu.KVCopy{From: int32(c.From), To: int32(c.To), Tokens: c.Tokens})
	}
}

// dropUnwanted leaves of each sequence the rows with logits.
func (s *scratch) dropUnwanted(b *batch.Batch) {
	for i := range b.Items {
		q := &s.sequences[i]
		skip := q.Rows - b.Items[i].Logits
		q.FirstRow, q.Start, q.Rows = q.FirstRow+skip, q.Start+skip, q.Rows-skip
	}
}
