package metrics

import "math"

// The buckets are vLLM's where it has the same histogram, so that boards agree.

func firstTokenBuckets() []float64 {
	return []float64{
		.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20,
		40, 80, 160, 640, 2560,
	}
}

func tokenBuckets() []float64 {
	return []float64{
		.002, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5,
		10, 20, 40, 80,
	}
}

func requestBuckets() []float64 {
	return []float64{
		.01, .05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120,
		240, 480, 960, 1920, 7680,
	}
}

func transferBuckets() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

func ratioBuckets() []float64 {
	return []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .99, 1}
}

func stepTokenBuckets() []float64 {
	return []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
}

// stepBuckets run from 10 µs to 10 s, policyBuckets from 1 µs to 10 ms, in steps of 1, 2.5 and 5.
func stepBuckets() []float64   { return decades(-5, 6) }
func policyBuckets() []float64 { return decades(-6, 4) }

// fuelBuckets run from 1 000 to 1 000 000 000 units.
func fuelBuckets() []float64 { return decades(3, 6) }

// decades returns 1, 2.5 and 5 times each of n powers of ten, from that exponent on, and the power
// after the last. Each bound is the number that its decimal names, so that le="0.0001" matches.
func decades(exponent, n int) []float64 {
	scaled := func(x float64, e int) float64 {
		if e < 0 {
			return x / math.Pow10(-e) // Exact numbers, divided once.
		}
		return x * math.Pow10(e)
	}
	var all []float64
	for e := exponent; e < exponent+n; e++ {
		all = append(all, scaled(1, e), scaled(2.5, e), scaled(5, e))
	}
	return append(all, scaled(1, exponent+n))
}
