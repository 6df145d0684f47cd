package placement

// Balance says how a prompt is shared between a prefill and a decode instance. The zero value has
// the prefill instance compute all that a prefill instance may: all but the last token.
type Balance struct {
	// Share is the part of the prompt, from its end, that the decode instance computes; 0 to 1.
	Share float64
	// Auto chooses that part anew for each prompt from what the two have to do; Share is ignored.
	Auto bool
	// MinRemote is the fewest tokens that are worth a remote prefill.
	MinRemote int
}

// Split returns how many tokens of a prompt, from its start, the ticket's prefill instance is to
// compute: between 0 (the decode instance computes all) and prompt-1. Without a prefill instance
// it is 0.
//
// With Auto the decode instance takes over half of what the prefill instance has to compute more
// than itself before this prompt: then both are through with what came before at the same time.
// Where nothing waits at the prefill instance nothing is taken over, because on the decode instance
// each prompt token delays the tokens of others.
func (p *Pool) Split(t *Ticket, prompt int, b Balance) (end int) {
	most := prompt - 1
	prefill, decode := t.held[Prefill], t.held[Decode]
	if prefill == nil || most < 1 {
		return 0
	}
	local := int(b.Share * float64(prompt))
	if b.Auto {
		local = 0
		if decode != nil {
			local = max(0, prefill.pending-decode.pending) / 2
		}
	}
	end = min(most, prompt-local)
	if end < max(1, b.MinRemote) {
		return 0
	}
	return end
}

// Worth reports whether the part of a prompt that is in no cache is worth a remote prefill.
func (b Balance) Worth(uncached int) bool { return uncached >= max(1, b.MinRemote) }
