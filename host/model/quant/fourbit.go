package quant

import (
	"encoding/binary"
	"math"
)

const (
	superLength = 256 // numbers of a Q4_K block
	subLength   = 32  // numbers that share a scale and a least value
	subs        = superLength / subLength
	maxSix      = 63 // of a six-bit scale
	maxFour     = 15
)

// appendQ4K: scale·q - least with q in [0, 15]. The eight scales and least values of a block are
// six-bit multiples of two of its own.
func appendQ4K(dst []byte, x []float32) []byte {
	var scales, leasts [subs]float32
	topScale, topLeast := float32(0), float32(0)
	for i := range subs {
		scales[i], leasts[i] = fit(x[i*subLength:][:subLength])
		topScale, topLeast = max(topScale, scales[i]), max(topLeast, leasts[i])
	}
	scaleBits, scaleUnit := half(topScale / maxSix)
	leastBits, leastUnit := half(topLeast / maxSix)
	dst = binary.LittleEndian.AppendUint16(dst, scaleBits)
	dst = binary.LittleEndian.AppendUint16(dst, leastBits)
	var scale, least [subs]byte
	var q [superLength]byte
	for i := range subs {
		scale[i] = nearest(scales[i]*inverse(scaleUnit), maxSix)
		least[i] = nearest(leasts[i]*inverse(leastUnit), maxSix)
		s, m := scaleUnit*float32(scale[i]), leastUnit*float32(least[i])
		for j := range subLength {
			at := i*subLength + j
			q[at] = nearest((x[at]+m)*inverse(s), maxFour)
		}
	}
	dst = appendSixBits(dst, scale, least)
	for i := 0; i < superLength; i += 2 * subLength {
		for j := range subLength {
			dst = append(dst, q[i+j]|q[i+subLength+j]<<4)
		}
	}
	return dst
}

// appendSixBits packs eight scales and eight least values into twelve bytes: the first four of each
// with the upper two bits of the last four above them, then the lower four bits of the last.
func appendSixBits(dst []byte, scale, least [subs]byte) []byte {
	for i := range 4 {
		dst = append(dst, scale[i]|scale[i+4]>>4<<6)
	}
	for i := range 4 {
		dst = append(dst, least[i]|least[i+4]>>4<<6)
	}
	for i := range 4 {
		dst = append(dst, scale[i+4]&15|least[i+4]&15<<4)
	}
	return dst
}

// nearest rounds to a whole number of [0, most].
func nearest(x float32, most int) byte {
	return byte(min(max(int(math.RoundToEven(float64(x))), 0), most))
}

// fitTries is how many first guesses of a scale fit tries.
const fitTries = 24

// fit finds scale and least value, neither below 0, for which scale·q - least is near x, weighing
// each error by the number's magnitude. Each guess of the scale gives whole numbers q, and these
// the best scale and least value by least squares; the guesses run from a range that is a little
// too narrow to one that is a little too wide.
func fit(x []float32) (scale, least float32) {
	low, high := x[0], x[0]
	mean := float32(0)
	for _, v := range x {
		low, high = min(low, v), max(high, v)
		mean += v * v
	}
	low, high = min(low, 0), max(high, low)
	if high == low {
		return 0, -low
	}
	root := float32(math.Sqrt(float64(mean) / float64(len(x))))
	best := math.Inf(1)
	for try := range fitTries {
		steps := float32(maxFour) - 1 + float32(try)*0.1
		guess := (high - low) / steps
		s, m := solve(x, guess, -low, root)
		if e := deviation(x, s, m, root); e < best {
			best, scale, least = e, s, m
		}
	}
	return scale, least
}

// weight is what an error of number v counts: large weights move more.
func weight(v, root float32) float64 { return float64(root + abs(v)) }

// solve minimises Σ w·(scale·q - least - x)² for the q that the guess gives.
func solve(x []float32, scale, least, root float32) (float32, float32) {
	var w, wq, wqq, wx, wqx float64
	for _, v := range x {
		q, g := float64(nearest((v+least)/scale, maxFour)), weight(v, root)
		w, wq, wqq = w+g, wq+g*q, wqq+g*q*q
		wx, wqx = wx+g*float64(v), wqx+g*q*float64(v)
	}
	d := w*wqq - wq*wq
	if d <= 0 {
		return scale, least
	}
	s, m := (w*wqx-wq*wx)/d, (wq*wqx-wqq*wx)/d
	if m < 0 && wqq > 0 { // The least value may not be added: without it, the best scale alone.
		s, m = wqx/wqq, 0
	}
	if s <= 0 {
		return scale, least
	}
	return float32(s), float32(m)
}

// deviation is the weighed squared error.
func deviation(x []float32, scale, least, root float32) float64 {
	sum := 0.0
	for _, v := range x {
		q := float32(nearest((v+least)*inverse(scale), maxFour))
		e := float64(scale*q - least - v)
		sum += weight(v, root) * e * e
	}
	return sum
}
