package bench

import (
	"math"
	"strings"
	"testing"
)

// TestCharts: a bar for each row, on a scale of its unit that the largest sample fills; a load has
// plots of its own, and what is nothing everywhere has no bar.
func TestCharts(t *testing.T) {
	r := &Result{Rows: []Row{RowOf("pp512", "tok/s", []float64{80, 100, 120}),
		RowOf("tg64", "tok/s", []float64{30}), {Name: "zero", Unit: "%"}}}
	list := r.charts()
	if len(list) != 2 || len(list[0].Bars) != 2 || len(list[1].Bars) != 0 {
		t.Fatalf("%+v", list)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	pp, tg := list[0].Bars[0], list[0].Bars[1]
	if !near(pp.Width, 250) || !near(pp.From, chartLeft+200) || !near(pp.Length, 100) ||
		!pp.Spread || !near(tg.Width, 75) || tg.Spread || tg.Y <= pp.Y {
		t.Errorf("%+v %+v", pp, tg)
	}
	var page strings.Builder
	if err := r.WritePage(&page); err != nil || strings.Count(page.String(), "<rect") != 2 {
		t.Errorf("%v: %s", err, page.String())
	}
	r.Load = &Load{}
	if r.charts() != nil {
		t.Error("a load has charts")
	}
}
