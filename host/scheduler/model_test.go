package scheduler

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// fakeModel stands in for a model: the entry of a position is a hash of its token and of all
// entries before it, read through the page table, and so is what the next token is made from. Any
// mistake in paging, chunking, sharing or transfer becomes a wrong token.
type fakeModel struct {
	pageSize int
	sight
	slots []uint64
}

const vocabulary = 40

// sight is what a position sees: all before it, or a window of them and sinks.
type sight struct{ window, sinks int }

func (s sight) hides(position, key int) bool {
	return s.window > 0 && key <= position-s.window && key >= s.sinks
}

func newFakeModel(o Options) *fakeModel { return newFakeDraft(o.PageSize, o.main()) }

func newFakeDraft(pageSize int, m Memory) *fakeModel {
	return &fakeModel{
		pageSize: pageSize, sight: sight{m.Window, m.Sinks},
		slots: make([]uint64, m.Pages*pageSize),
	}
}

// slides reports whether a position's page will have slid out when n positions are computed, by the
// words of the definition.
func (m *fakeModel) slides(position, n int) bool {
	first := position - position%m.pageSize
	return m.window > 0 && first+m.pageSize <= n-m.window+1 && first >= m.sinks
}

// entries is what a model must hold for tokens.
func (s sight) entries(tokens []int32) (entries []uint64) {
	for i, token := range tokens {
		acc := uint64(7)
		for k, entry := range entries {
			if !s.hides(i, k) {
				acc = mix(acc, entry)
			}
		}
		entries = append(entries, entryOf(acc, token))
	}
	return entries
}

func mix(a, b uint64) uint64 {
	x := a*0x9E3779B97F4A7C15 ^ b + 0x7F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x ^ x>>32
}

func (m *fakeModel) at(pages []kvcache.PageID, position int) *uint64 {
	return &m.slots[int(pages[position/m.pageSize])*m.pageSize+position%m.pageSize]
}

// digest reads what a position sees of the first n through a page table.
func (m *fakeModel) digest(pages []kvcache.PageID, position, n int) uint64 {
	acc := uint64(7)
	for i := 0; i < n; i++ {
		if m.hides(position, i) {
			i = position - m.window // The last one that is hidden.
			continue
		}
		acc = mix(acc, *m.at(pages, i))
	}
	return acc
}

// run computes a batch and returns a digest for each row of logits.
func (m *fakeModel) run(b *batch.Batch) (rows []uint64, err error) {
	for _, c := range b.Copies {
		copy(m.slots[int(c.To)*m.pageSize:][:c.Tokens], m.slots[int(c.From)*m.pageSize:])
	}
	written := map[kvcache.PageID]int{}
	for k, item := range b.Items {
		end := item.Start + len(item.Tokens)
		if got := len(item.Pages); got != (end+m.pageSize-1)/m.pageSize {
			return nil, fmt.Errorf("item %d ends at %d and has %d pages", k, end, got)
		}
		for page := item.Start / m.pageSize; page < len(item.Pages); page++ {
			if other, twice := written[item.Pages[page]]; twice && other != k {
				return nil, fmt.Errorf("items %d and %d write to page %d",
					other, k, item.Pages[page])
			}
			written[item.Pages[page]] = k
		}
		tokens := slices.Clone(item.Tokens)
		for _, e := range item.Embeds {
			for i, value := range e.Values {
				tokens[e.Start-item.Start+i] = int32(value)
			}
		}
		for i, token := range tokens {
			at := item.Start + i
			if token < 0 {
				return nil, fmt.Errorf("item %d: position %d has no token and no vector", k, at)
			}
			*m.at(item.Pages, at) = entryOf(m.digest(item.Pages, at, at), token)
		}
		for l := range item.Logits {
			at := end - item.Logits + l
			rows = append(rows, m.digest(item.Pages, at, at+1))
		}
	}
	return rows, nil
}

func entryOf(before uint64, token int32) uint64 { return mix(before, uint64(token)+1) }

// sample turns a digest into a token; each request has its own seed, so that equal prompts part.
func sample(digest uint64, id SequenceID) int32 {
	return int32(mix(digest, uint64(id)) % vocabulary)
}

// oracle is what the model must come to, from the tokens alone: the entries of all positions, and
// the first n tokens generated.
func (s sight) oracle(
	prompt []int32, n int, id SequenceID,
) (entries []uint64, output []int32) {
	tokens := append([]int32{}, prompt...)
	for i := 0; i < len(tokens); i++ {
		acc := uint64(7)
		for k, entry := range entries {
			if !s.hides(i, k) {
				acc = mix(acc, entry)
			}
		}
		entry := entryOf(acc, tokens[i])
		entries = append(entries, entry)
		if i == len(tokens)-1 && len(output) < n {
			token := sample(mix(acc, entry), id)
			output = append(output, token)
			if len(output) < n {
				tokens = append(tokens, token)
			}
		}
	}
	return entries, output
}
