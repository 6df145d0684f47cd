package pol

import "github.com/kvrelay/engine/abi"

// ChunkWithin is the longest chunk, at most ChunkMax, with which the step should end within
// targetNS by the engine's own cost figures: fixed + tokens * cost_token + tokens * (context +
// tokens/2) * cost_ctx, the running decodes included. context is what the prompt has already:
// cached, and computed. Without figures it is ChunkMax.
func ChunkWithin(h *abi.Header, context uint32, targetNS int64) uint32 {
	if h.CostTokenNS == 0 {
		return h.ChunkMax
	}
	token := float64(h.CostTokenNS)
	left := float64(targetNS) - float64(h.CostFixedUS)*1e3 - float64(h.DecodeTokens)*token
	low, high := uint32(0), h.ChunkMax // low fits.
	for low < high {
		n := high - (high-low)/2
		t := float64(n)
		cost := t*token + t*(float64(context)+0.5*t)*float64(h.CostCtxPS)*1e-3
		if cost <= left {
			low = n
		} else {
			high = n - 1
		}
	}
	return low
}
