package cpu

import "github.com/kvrelay/engine/gpu"

// visible gives the columns [low, high) of the block at start that a query at position goes
// through: from the first visible key on, up to the last. Some between may still be hidden. The
// range depends on the position alone, never on the rows that share a tile.
func visible(a *gpu.AttentionArgs, position, start int) (low, high int) {
	high = min(attentionBlock, position+1-start)
	if a.Window > 0 && start >= a.Sinks {
		low = max(0, position-a.Window+1-start)
	}
	return low, high
}

// hidden says whether the window hides a key from the query at position.
func hidden(a *gpu.AttentionArgs, position, key int) bool {
	return a.Window > 0 && key <= position-a.Window && key >= a.Sinks
}

// slidOut says whether the window hides all keys of the page whose first one stands at first from
// the query at position, and so from all later ones.
func slidOut(a *gpu.AttentionArgs, position, first, pageSize int) bool {
	return hidden(a, position, first) && hidden(a, position, first+pageSize-1)
}
