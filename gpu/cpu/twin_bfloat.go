package cpu

// In the numerics classes with bf16, activations that meet weights in BF16 are rounded to bfloat16,
// the nearest, of two equally near ones the even one. An output is one chain of FMAs, k ascending,
// as in the class fma. Every operation takes numbers below 2⁻¹²⁶ for zeros of their sign, those
// that it gets and those that it gives: VDPBF16PS does, whatever a program wants.

// bfloatSum adds activations times weights, which are bfloat16, to sum.
func bfloatSum(x, w []float32, sum float32) float32 {
	sum = flush(sum)
	for k, v := range w {
		sum = fmaFlush(flush(bfloatToFloat(floatToBfloat(x[k]))), flush(v), sum)
	}
	return sum
}
