//go:build cuda

package cuda_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
)

const sharedVariable = "ENGINE_EMULATOR_SHARED"

// TestRealSharedMemory: the emulated GPU with the shared memory of older and smaller ones gives the
// same bits through the whole device. 48 KiB, which none of them is down to, are too few for the
// tensor core kernel of heads of 256: another kernel then comes within rounding.
func TestRealSharedMemory(t *testing.T) {
	d := real(t, cuda.Options{Type: gpu.BF16})
	defer d.Close()
	if !strings.HasPrefix(d.Info().Name, "Emulated") {
		t.Skip("a real GPU has one limit")
	}
	var mine [][]float32
	for _, dim := range []int{64, 128, 256} {
		mine = append(mine, attended(t, d, dim))
	}
	if os.Getenv(sharedVariable) != "" {
		for _, rows := range mine {
			fmt.Printf("rows %d %s\n", d.Info().SharedPerBlock>>10, hex.EncodeToString(bits(rows)))
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kib := range sharedLimits {
		test := exec.Command(self, "-test.run=^TestRealSharedMemory$", "-test.count=1")
		test.Env = append(os.Environ(), fmt.Sprintf("%s=%d", sharedVariable, kib))
		said, err := test.CombinedOutput()
		rows := regexp.MustCompile(fmt.Sprintf(`(?m)^rows %d ([0-9a-f]+)$`, kib)).
			FindAllStringSubmatch(string(said), -1)
		if err != nil || len(rows) != len(mine) {
			t.Fatalf("%d KiB: %v\n%s", kib, err, said)
		}
		for i, want := range mine {
			data, err := hex.DecodeString(rows[i][1])
			if err != nil {
				t.Fatal(err)
			}
			same := string(data) == string(bits(want))
			if other := kib == 48 && i == 2; same == other || other && !near(data, want) {
				t.Errorf("%d KiB, heads of %d: same bits: %v", kib, 64<<i, same)
			}
		}
	}
}

func bits(x []float32) []byte {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// near is within 5e-3 of the rows' mean, as kernels are of float64.
func near(got []byte, want []float32) bool {
	var off, all float64
	for i, w := range want {
		g := float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])))
		off += (g - float64(w)) * (g - float64(w))
		all += float64(w) * float64(w)
	}
	return off <= all*25e-6*4
}
