package model

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
)

func TestWidenHalf(t *testing.T) {
	for h, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24),
		0x7bff: 65504, 0x8000: 0, 0x7c00: float32(math.Inf(1)), 0xfc00: float32(math.Inf(-1))} {
		if got := widenHalf(h); got != want {
			t.Errorf("half %04x is %v, want %v", h, got, want)
		}
	}
	if x := widenHalf(0x7c01); x == x {
		t.Errorf("half 7c01 is %v, want NaN", x)
	}
}

// narrowings are the two short types: how to write and how to read one, and its largest number.
var narrowings = []struct {
	dtype    gpu.DType
	narrow   func(float32) uint16
	widen    func(uint16) float32
	infinite uint16
}{
	{gpu.F16, narrowHalf, widenHalf, 0x7c00},
	{gpu.BF16, narrowBrain, func(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) },
		0x7f80},
}

// TestNarrow compares with the definition: of the two neighbours the nearer one, of equally near
// ones the even one.
func TestNarrow(t *testing.T) {
	for _, n := range narrowings {
		for h := range n.infinite + 1 {
			if got := n.narrow(n.widen(h)); got != h {
				t.Fatalf("%v: %04x comes back as %04x", n.dtype, h, got)
			}
			if got := n.narrow(-n.widen(h)); got != h|0x8000 {
				t.Fatalf("%v: %04x comes back as %04x", n.dtype, h|0x8000, got)
			}
		}
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		for range 200000 {
			h := uint16(random.UintN(uint(n.infinite)))
			low, high := float64(n.widen(h)), float64(n.widen(h+1))
			if h+1 == n.infinite {
				high = 2*low - float64(n.widen(h-1)) // the number that would follow
			}
			x := float32(low + (high-low)*float64(random.UintN(9))/8)
			if random.UintN(2) == 0 {
				x = math.Nextafter32(x, float32(low))
			}
			want := h
			if d := (float64(x) - low) - (high - float64(x)); d > 0 || d == 0 && h&1 == 1 {
				want = h + 1
			}
			if got := n.narrow(x); got != want {
				t.Fatalf("seed %d: %v of %v is %04x, want %04x", seed, n.dtype, x, got, want)
			}
		}
		if x := n.widen(n.narrow(math.Float32frombits(0x7f800001))); x == x {
			t.Errorf("%v: a NaN becomes %v", n.dtype, x)
		}
	}
}

func TestConvert(t *testing.T) {
	values := []float32{0, -1.5, 65519, 3e-8, float32(math.Inf(-1))}
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	for _, to := range []gpu.DType{gpu.F16, gpu.BF16} {
		short := gpu.Tensor{Rows: 1, Cols: len(values), DType: gpu.F32, Data: data}
		if err := convert(&short, to); err != nil || short.DType != to {
			t.Fatalf("%v: %v", to, err)
		}
		long := short
		if err := convert(&long, gpu.F32); err != nil {
			t.Fatal(err)
		}
		got := widen(gpu.F32, long.Data)
		if got[0] != 0 || got[1] != -1.5 || !math.IsInf(float64(got[4]), -1) ||
			math.Abs(float64(got[2])-65519) > 256 {
			t.Errorf("through %v: %v", to, got)
		}
	}
	for to, large := range map[gpu.DType]float32{gpu.F16: 65520, gpu.BF16: math.MaxFloat32} {
		data := binary.LittleEndian.AppendUint32(nil, math.Float32bits(large))
		err := convert(&gpu.Tensor{Rows: 1, Cols: 1, Data: data}, to)
		if err == nil || !strings.Contains(err.Error(), "is too large for "+to.String()) {
			t.Errorf("%v to %v: %v", large, to, err)
		}
	}
}
