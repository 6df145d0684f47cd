package model_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
)

// routed watches the scores by which a model's routers choose experts. With a leader, whose steps
// come first, the leader's scores take the place of the device's own: rows then go through the same
// experts on both, and each choice can be compared by itself, with nothing of earlier ones in it.
type routed struct {
	gpu.Device
	experts, chosen int
	buffer          gpu.Buffer  // of the last product that had an output an expert
	scores          [][]float32 // in the order of the routers
	leader          *routed     // nil: it leads
	followed        int         // how many of the leader's were taken

	rows, differ int     // choices, and how many the device's own scores make otherwise
	width        float64 // the sum of the ranges of the rows' scores
	off          float64 // the largest difference of a score
	gap          float64 // the largest lead of a score that a choice which differs overturned
}

func (d *routed) MatMul(a gpu.MatMulArgs) error {
	if a.W.Rows() == d.experts {
		d.buffer = a.Dst
	}
	return d.Device.MatMul(a)
}

func (d *routed) Read(dst []float32, src gpu.Buffer, first int) error {
	if err := d.Device.Read(dst, src, first); err != nil || src != d.buffer || d.experts == 0 {
		return err
	}
	d.buffer = nil
	if d.leader == nil {
		d.scores = append(d.scores, slices.Clone(dst))
		return nil
	}
	want := d.leader.scores[d.followed]
	d.followed++
	for i := 0; i < len(want); i += d.experts {
		d.compare(dst[i:][:d.experts], want[i:][:d.experts])
	}
	copy(dst, want)
	return nil
}

// compare notes how a row's scores differ from the leader's, and whether they choose others.
func (d *routed) compare(got, want []float32) {
	d.rows++
	d.width += float64(slices.Max(want) - slices.Min(want))
	for i, w := range want {
		d.off = max(d.off, float64(max(got[i]-w, w-got[i])))
	}
	a, b := best(got, d.chosen), best(want, d.chosen)
	if slices.Equal(a, b) {
		return
	}
	d.differ++
	for _, e := range b {
		for _, other := range a {
			if !slices.Contains(a, e) && !slices.Contains(b, other) {
				d.gap = max(d.gap, float64(want[e]-want[other]))
			}
		}
	}
}

// best are the experts of the highest scores, of equal ones the first, in the order of experts.
func best(scores []float32, chosen int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	order = order[:chosen]
	slices.Sort(order)
	return order
}

// explained wants every choice of experts that differs to be one that rounding may turn. Its
// measure is the mean range of a row's scores: few scores may lie close by chance, and the rounding
// of the sums that they are does not shrink with that.
func (d *routed) explained(t *testing.T, tolerance float64) {
	t.Helper()
	if d.experts == 0 {
		return
	}
	if d.rows == 0 || d.followed != len(d.leader.scores) {
		t.Errorf("%d of %d routers were seen", d.followed, len(d.leader.scores))
	}
	width := d.width / float64(d.rows)
	off, gap := d.off/width, d.gap/width
	if off > tolerance || gap > tolerance {
		t.Errorf("a router's score is off by %.3f of the range; a choice of experts differs over "+
			"a lead of %.3f", off, gap)
	}
	t.Logf("%d of %d choices of experts differ, over leads of at most %.4f of the range; scores "+
		"are within %.4f of it", d.differ, d.rows, gap, off)
}
