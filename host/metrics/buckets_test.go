package metrics

import (
	"slices"
	"testing"
)

// TestBucketsAreDecimals: a query names a bound as it is written.
func TestBucketsAreDecimals(t *testing.T) {
	want := []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3,
		5e-3, 1e-2}
	if got := policyBuckets(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := fuelBuckets(); got[0] != 1e3 || got[len(got)-1] != 1e9 || len(got) != 19 {
		t.Errorf("fuel: %v", got)
	}
}
