package model

import (
	"math"
	"slices"
	"testing"
)

func TestExponential(t *testing.T) {
	for y := -700.0; y < 700; y += 0.37 {
		if got, want := exponential(y), math.Exp(y); math.Abs(got-want) > 1e-14*want {
			t.Fatalf("exponential(%v) = %v, want %v", y, got, want)
		}
	}
	if got := exponential(math.Inf(-1)); got != 0 {
		t.Errorf("exponential(-Inf) = %v", got)
	}
}

// TestRoute: the best experts of each row, the first of equal ones, with factors that are the
// softmax of all, cut to the chosen ones and scaled to one.
func TestRoute(t *testing.T) {
	r := routing{scores: []float32{
		1, 3, 2, 0,
		5, 5, 5, 5,
		-90, 10, -90, -90,
	}}
	for range 2 { // the second time in used memory
		r.route(4, 2)
		want := [][]int32{{1, 2}, {0, 1, 2}, {0}, nil}
		for e, rows := range r.rows {
			if !slices.Equal(rows, want[e]) {
				t.Errorf("expert %d takes rows %v, want %v", e, rows, want[e])
			}
		}
		near := func(got float32, want float64) {
			t.Helper()
			if math.Abs(float64(got)-want) > 1e-7 {
				t.Errorf("factor %v, want %v", got, want)
			}
		}
		all := math.Exp(0) + math.Exp(1) + math.Exp(2) + math.Exp(3)
		second, first := math.Exp(2)/all, math.Exp(3)/all
		near(r.factors[1][0], first/(first+second))
		near(r.factors[2][0], second/(first+second))
		near(r.factors[0][0], 0.5)
		near(r.factors[1][1], 0.5)
		near(r.factors[1][2], 1)
		near(r.factors[0][1], 0)
	}
	nan := float32(math.NaN())
	r.scores = []float32{nan, nan, 1, nan}
	r.route(4, 4) // whatever it gives, each expert once
	for e, rows := range r.rows {
		if len(rows) != 1 {
			t.Errorf("expert %d takes rows %v", e, rows)
		}
	}
}
