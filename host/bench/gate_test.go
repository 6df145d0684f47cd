package bench

import (
	"slices"
	"strings"
	"testing"
)

// TestGate: what is slower in the median and at its best, by more than is let pass, is a
// regression, also where smaller figures are better. What has one good round, what is a little
// slower, and what is of the machine is none.
func TestGate(t *testing.T) {
	result := func(steady, noisy, little, latency, machine float64) *Result {
		return &Result{Rows: []Row{{Name: "steady", Unit: "tok/s", Value: steady},
			{Name: "noisy", Unit: "tok/s", Value: noisy},
			{Name: "little", Unit: "tok/s", Value: little},
			{Name: "latency", Unit: "ms", Value: latency, Lower: true},
			{Name: "limit", Unit: "GB/s", Value: machine, Machine: true},
			{Name: "zero", Unit: "%"}}}
	}
	var g Gate
	before := result(100, 100, 100, 10, 100)
	g.Add(before, result(80, 50, 98, 11, 50))
	g.Add(before, result(90, 101, 97, 12, 50))
	g.Add(before, result(85, 70, 99, 20, 50))
	if got := g.Worse(0.95); !slices.Equal(got, []string{"steady", "latency"}) {
		t.Errorf("worse are %v", got)
	}
	if got := g.Worse(0.9); got != nil {
		t.Errorf("held to 0.9, worse are %v", got)
	}
	if got := g.Worse(0.995); !slices.Equal(got, []string{"steady", "little", "latency"}) {
		t.Errorf("held to 0.995, worse are %v", got)
	}
	if g.Rounds() != 3 {
		t.Errorf("%d rounds", g.Rounds())
	}
	var text strings.Builder
	if err := g.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"steady   tok/s  0.850  0.800  0.900  0.900",
		"latency  ms     0.833  0.500  0.909  0.909"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if (&Gate{}).Worse(2) != nil || (&Gate{}).Rounds() != 0 {
		t.Error("a gate without rounds finds something")
	}
}
