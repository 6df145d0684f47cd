package pol

import "github.com/kvrelay/engine/abi"

// Pages tells by the host's own rule whether a chunk will get its pages: one has to stay free for
// each request that holds some, and an admission leaves the reserve free too unless nobody holds
// any. Decodes take theirs first: who wants to be exact takes the PagesNeeded of each decoding
// record off Free before the first question.
type Pages struct {
	Free                   uint32
	running, reserve, size uint32
}

// PagesOf is what a step begins with.
func PagesOf(h *abi.Header) Pages {
	return Pages{
		Free: h.FreePages, running: h.NRunning, reserve: h.ReservePages,
		size: max(h.PageTokens, 1),
	}
}

// Needed is how many new pages the next tokens of a prompt take.
func (p *Pages) Needed(r *abi.Record, tokens uint32) uint32 {
	whole := uint64(r.PromptTokens) + uint64(r.Generated)
	computed, size := whole-min(whole, uint64(r.RemainingPrefill)), uint64(p.size)
	// A waiting request shares full pages only: of a page begun by another it needs a copy.
	has := computed / size
	if !waits(r) {
		has = (computed + size - 1) / size
	}
	need := (computed+uint64(tokens)+size-1)/size - has
	return uint32(min(need, uint64(r.PagesNeeded)))
}

// Take says whether the chunk fits, and if so takes its pages off.
func (p *Pages) Take(r *abi.Record, tokens uint32) bool {
	need, waiting := p.Needed(r, tokens), waits(r)
	spare := uint64(p.running)
	switch {
	case waiting && p.running == 0:
		spare = 1
	case waiting:
		spare = uint64(p.reserve) + 1
	}
	if (need > 0 || waiting) && uint64(need)+spare > uint64(p.Free) {
		return false
	}
	p.Free -= need
	if waiting {
		p.running++
		p.reserve++
	}
	return true
}

func waits(r *abi.Record) bool { return r.State&abi.StateRunning == 0 }
