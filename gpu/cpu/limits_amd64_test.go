package cpu

import (
	"testing"
	"unsafe"
)

// TestTileLimit runs the loop that measures tiles on the model of a processor: it computes what its
// number of operations says, reads a tile of zeros alone, and ends.
func TestTileLimit(t *testing.T) {
	config, zeros := newMemory(int(unsafe.Sizeof(tileConfig{}))), newMemory(tileBytes)
	(*tileConfig)(config.at(0)).set(amxRows)
	const turns = 3
	m := &tileMachine{allowed: []region{regionOf(config.bytes, false),
		regionOf(zeros.bytes, false)}}
	m.run(limitTilesCode(), uint64(uintptr(config.at(0))), uint64(uintptr(zeros.at(0))), turns)
	const before, around = 4 + 1 + 8, 2 // arguments, configuration, tiles; the end of each turn
	if got := m.executed - before; got < turns*(tileLimitChains+around) ||
		got > turns*(tileLimitChains+around)+2 {
		t.Errorf("%d instructions in %d turns of %d products", got, turns, tileLimitChains)
	}
}
