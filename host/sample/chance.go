package sample

// uniform returns the n-th number of a seed's sequence, in [0, 1) and a multiple of 2^-53. Any n
// can be had at once: the number is a hash of both, not the state of a generator.
func uniform(seed, n uint64) float64 {
	// The two are hashed one after the other, so that neighbouring seeds share no numbers.
	return float64(mix(mix(seed)+0x9e3779b97f4a7c15*(n+1))>>11) * 0x1p-53
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014): a bijection of 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
