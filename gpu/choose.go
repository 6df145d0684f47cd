package gpu

import "fmt"

// Chooser is a device that finds the best numbers of rows of logits by itself, so that a row need
// not leave it for the few that matter. Its methods wait as Read does, and see the numbers that
// Read would give, which stay there for a Read that follows.
type Chooser interface {
	// Argmax writes to dst[r] the place of the largest number of row r of x, the first among
	// equals: -1 of a row with a NaN, with +Inf, or with nothing but -Inf.
	Argmax(dst []int32, x Buffer, width int) error
	// TopK gives the largest numbers of each row, and how much the others weigh.
	TopK(TopKArgs) error
}

// MaxTopK is the most numbers that TopK gives of a row, MaxTopKWidth the widest row: the sum of a
// wider one in float32 may be further off than SumError.
const (
	MaxTopK      = 256
	MaxTopKWidth = 1 << 19
)

// TopKArgs: of each row r of X, [len(Temperatures)][Width], the K largest numbers are written to
// Values[r*K:], larger ones first and among equals those that come first in the row, their places
// to Places[r*K:]. Sums[r] = Σ exp((x - largest)/Temperatures[r]) over the whole row, at most
// SumError of it off; of a row with a NaN, with +Inf or with nothing but -Inf it is a NaN, and what
// stands in Places and Values means nothing.
type TopKArgs struct {
	X            Buffer
	Width, K     int // K is at most Width and MaxTopK
	Temperatures []float32
	Places       []int32
	Values, Sums []float32
}

// SumError bounds how far a sum of TopK may be off, relative to it.
const SumError = 1e-4

// Check reports arguments that do not fit one another.
func (a *TopKArgs) Check() error {
	rows := len(a.Temperatures)
	switch {
	case a.K < 1 || a.K > a.Width || a.K > MaxTopK:
		return fmt.Errorf("the best %d of %d numbers; from 1 to %d are possible", a.K, a.Width,
			MaxTopK)
	case a.Width > MaxTopKWidth:
		return fmt.Errorf("rows of %d numbers; %d are possible", a.Width, MaxTopKWidth)
	case rows*a.Width > a.X.Elements():
		return fmt.Errorf("%d rows of %d numbers in a buffer of %d", rows, a.Width,
			a.X.Elements())
	case len(a.Places) != rows*a.K || len(a.Values) != rows*a.K || len(a.Sums) != rows:
		return fmt.Errorf("room for %d places, %d values and %d sums of %d rows, %d of each",
			len(a.Places), len(a.Values), len(a.Sums), rows, a.K)
	}
	return nil
}
