package cpu

import "unsafe"

// fastLimits are the loops of an instruction set; nil where there are none.
func fastLimits(isa ISA) *limitLoops {
	switch isa {
	case AVX2:
		return &limitLoops{fma: limitFMAAVX2, fmaOps: 2 * 8 * 12, dot: limitDotAVX2,
			dotOps: 2 * 32 * 8, small: limitSmallAVX2, smallOps: 2 * 32 * 12, read: limitReadAVX2}
	case AVXVNNI:
		l := fastLimits(AVX2)
		l.dot, l.dotOps, l.small = limitDotAVXVNNI, 2*32*12, nil
		return l
	case AVX512:
		return &limitLoops{fma: limitFMAAVX512, fmaOps: 2 * 16 * 24, dot: limitDotAVX512,
			dotOps: 2 * 64 * 24, pairs: limitPairsAVX512, pairOps: 2 * 32 * 24,
			read: limitReadAVX512}
	case AMX:
		l := fastLimits(AVX512)
		l.tiles, l.tileOps = limitTiles, 2*tileLimitChains*amxBlockRows*panelRows*tdpStep
		return l
	}
	return nil
}

// tileLimitChains is how many tiles of sums the loop of limitTilesAMX has.
const tileLimitChains = 6

// limitTiles is limitTilesAMX on whole tiles of zeros.
func limitTiles(turns int) {
	config := newMemory(int(unsafe.Sizeof(tileConfig{})))
	(*tileConfig)(config.at(0)).set(amxRows)
	zeros := newMemory(tileBytes)
	limitTilesAMX((*byte)(config.at(0)), (*byte)(zeros.at(0)), turns)
}
