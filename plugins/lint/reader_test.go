package lint

import (
	"math"
	"testing"
)

// encodeSigned writes v in exactly n bytes.
func encodeSigned(v int64, n int) []byte {
	var b []byte
	for i := range n {
		c := byte(v & 0x7f)
		v >>= 7
		if i < n-1 {
			c |= 0x80
		}
		b = append(b, c)
	}
	return b
}

func quiet(data []byte) *reader {
	return &reader{data: data, fail: func(Code, int, string, ...any) {}}
}

// TestSigned writes numbers at the edges of every width in every length and reads them back; what
// does not fit a width is refused.
func TestSigned(t *testing.T) {
	values := []int64{0, 1, -1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, 1 << 31, 1<<32 - 1,
		-1<<32 + 1, 1 << 32, -1 << 32, -1<<32 - 1, math.MaxInt64, math.MinInt64}
	for _, width := range []int{32, 33, 64} {
		longest := (width + 6) / 7
		for _, v := range values {
			fits := width == 64 || v >= -1<<(width-1) && v < 1<<(width-1)
			for n := 1; n <= longest+1; n++ {
				b := encodeSigned(v, n)
				if n < 10 && v>>(7*n-1) != 0 && v>>(7*n-1) != -1 {
					continue // does not fit n bytes
				}
				r := quiet(b)
				got := r.signed(width)
				want := fits && n <= longest
				if want == r.failed || want && (got != v || r.left() != 0) {
					t.Errorf("width %d: %d as % x: got %d, failed %v", width, v, b, got, r.failed)
				}
			}
		}
	}
}

func TestUnsigned(t *testing.T) {
	for _, c := range []struct {
		bytes string
		want  uint32
		ok    bool
	}{
		{"\x00", 0, true}, {"\x7f", 127, true}, {"\x80\x01", 128, true}, {"\x80\x00", 0, true},
		{"\xff\xff\xff\xff\x0f", math.MaxUint32, true}, {"\x80\x80\x80\x80\x00", 0, true},
		{"\xff\xff\xff\xff\x1f", 0, false}, {"\x80\x80\x80\x80\x80\x00", 0, false},
		{"\x80", 0, false}, {"", 0, false},
	} {
		r := quiet([]byte(c.bytes))
		if got := r.u32(); got != c.want || r.failed == c.ok {
			t.Errorf("% x: got %d, failed %v", c.bytes, got, r.failed)
		}
	}
}
