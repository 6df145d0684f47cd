package gputest

import (
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
)

// rounded is a device that keeps rows and weights in a type shorter than float32. What it is given
// is rounded to that type before it and the twin compute: the difference is then what the kernels
// make of it, and not what the numbers lost on their way in.
type rounded interface{ Precision() gpu.DType }

// unit is the distance of neighbours of 1 in the device's type; 0: it keeps float32.
func (p *pair) unit() float64 {
	d, ok := p.device.(rounded)
	switch {
	case !ok || d.Precision() == gpu.F32:
		return 0
	case d.Precision() == gpu.F16:
		return 1. / (1 << 10)
	}
	return 1. / (1 << 7)
}

// round rounds numbers to the device's type.
func (p *pair) round(x []float32) {
	d, ok := p.device.(rounded)
	for i := range x {
		switch {
		case ok && d.Precision() == gpu.F16:
			x[i] = cpu.FromHalf(cpu.Half(x[i]))
		case ok && d.Precision() == gpu.BF16:
			x[i] = cpu.FromBfloat(cpu.Bfloat(x[i]))
		}
	}
}

// Of a rounded device: the root of the mean squared error over that of what is wanted, and the
// largest error of one number over the larger of that number and the mean, both in units of its
// type. Rounding once costs at most half a unit of one number and a sixth in the mean; a kernel
// rounds its inputs' sums, weights and result. Where large numbers all but cancel, as values do of
// a row of attention with few keys, what is left has the error of those: topUnits of the largest.
const (
	meanUnits    = 1.0
	largestUnits = 8.0
	topUnits     = 2.0
)

// closeEnough says whether a rounded device's numbers are near enough: the first that is not.
func (p *pair) closeEnough(got, want []float32) (int, bool) {
	wanted, wrong, top := 0.0, 0.0, 0.0
	n := 0
	for i := range want {
		if special(got[i]) || special(want[i]) {
			continue
		}
		n++
		top = max(top, math.Abs(float64(want[i])))
		wanted += float64(want[i]) * float64(want[i])
		wrong += float64(got[i]-want[i]) * float64(got[i]-want[i])
	}
	mean := math.Sqrt(wanted / float64(max(n, 1)))
	for i := range want {
		limit := p.unit() *
			max(largestUnits*math.Abs(float64(want[i])), largestUnits*mean, topUnits*top)
		switch {
		case special(got[i]) || special(want[i]):
			if equal(got[i], want[i]) {
				continue
			}
			return i, false
		case math.Abs(float64(got[i]-want[i])) > limit:
			return i, false
		}
	}
	if wrong > meanUnits*meanUnits*p.unit()*p.unit()*wanted {
		worst := slices.MaxFunc(span(len(want)), func(a, b int) int {
			return compareFloats(math.Abs(float64(got[a]-want[a])),
				math.Abs(float64(got[b]-want[b])))
		})
		return worst, false
	}
	return 0, true
}

// special are infinities and NaNs.
func special(x float32) bool { return x-x != 0 }

func span(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sameBits compares rows that must be equal whatever shares their call: those of a device whose
// products come from a library that promises it for equal shapes alone may differ by rounding.
func (p *pair) sameBits(got, want []float32) bool {
	if d, ok := p.device.(interface{ RowsVary() bool }); !ok || !d.RowsVary() {
		return slices.Equal(got, want)
	}
	_, near := p.closeEnough(got, want)
	return near
}
