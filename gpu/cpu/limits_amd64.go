package cpu

// fastLimits are the loops of an instruction set; nil where there are none.
func fastLimits(isa ISA) *limitLoops {
	switch isa {
	case AVX2:
		return &limitLoops{fma: limitFMAAVX2, fmaOps: 2 * 8 * 12, dot: limitDotAVX2,
			dotOps: 2 * 32 * 8, read: limitReadAVX2}
	case AVX512:
		return &limitLoops{fma: limitFMAAVX512, fmaOps: 2 * 16 * 24, dot: limitDotAVX512,
			dotOps: 2 * 64 * 24, read: limitReadAVX512}
	}
	return nil
}
