package quant_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/model/quant"
)

// sharedDir is the folder of test data that is not part of the repository.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return filepath.Join(dir, "data")
}

// types are those of GGUF files.
var types = map[gguf.Type]gpu.DType{
	gguf.Q8_0: gpu.Q8_0, gguf.Q4_0: gpu.Q4_0, gguf.Q4_1: gpu.Q4_1, gguf.Q5_0: gpu.Q5_0,
	gguf.Q5_1: gpu.Q5_1, gguf.Q4_K: gpu.Q4_K, gguf.Q5_K: gpu.Q5_K, gguf.Q6_K: gpu.Q6_K,
}

func open(t *testing.T, path ...string) map[string]gguf.Tensor {
	t.Helper()
	f, err := gguf.Open(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	out := map[string]gguf.Tensor{}
	for _, tensor := range f.Tensors {
		out[tensor.Name] = tensor
	}
	return out
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// TestQuantise: the blocks are those of the gguf package, byte for byte, where the two files hold
// the same numbers.
func TestQuantise(t *testing.T) {
	models := filepath.Join(sharedDir(t), "models", "stories260k", "gguf")
	whole := open(t, models, "stories260K-F32.gguf")
	for file, to := range map[string]gpu.DType{
		"stories260K-pad192-Q8_0.gguf": gpu.Q8_0, "stories260K-pad192-Q4_0.gguf": gpu.Q4_0,
	} {
		compared := 0
		for name, want := range open(t, models, file) {
			from := whole[name]
			if types[want.Type] != to || len(from.Data) == 0 || from.Shape[0] != want.Shape[0] ||
				from.Shape[1] != want.Shape[1] {
				continue
			}
			compared++
			got, err := quant.Quantise(nil, to, floats(from.Data))
			if err != nil || !bytes.Equal(got, want.Data) {
				t.Errorf("%s of %s differs (%v)", name, file, err)
			}
		}
		if compared < 20 {
			t.Errorf("%s: only %d tensors were compared", file, compared)
		}
	}
}

// TestThereAndBack: what comes back is as near as a type's steps allow, and quantising it once more
// changes at most the last steps.
func TestThereAndBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	row := make([]float32, 64*256)
	for i := range row {
		row[i] = float32(r.NormFloat64()) * float32(math.Exp(float64(i/256%7)-3))
	}
	// The largest relative error of a normal distribution's numbers, of the root mean square, that
	// the types' steps give; Q4_K is the finer of the two with four bits.
	for to, most := range map[gpu.DType]float64{
		gpu.Q8_0: 0.006, gpu.Q4_0: 0.11, gpu.Q4_K: 0.085,
	} {
		blocks, err := quant.Quantise(nil, to, row)
		if err != nil || len(blocks) != to.RowBytes(len(row)) {
			t.Fatal(to, len(blocks), err)
		}
		back := quant.Dequantise(nil, to, blocks)
		var off, all float64
		for i, x := range row {
			scale := math.Exp(-2 * (float64(i/256%7) - 3))
			off += scale * float64(back[i]-x) * float64(back[i]-x)
			all += scale * float64(x) * float64(x)
		}
		if e := math.Sqrt(off / all); e > most || e < most/4 {
			t.Errorf("%v: off by %.4f of the root mean square, at most %v is right", to, e, most)
		}
	}
	for _, row := range [][]float32{make([]float32, 256), {7: 1, 255: 0}, {0: -1, 255: 0}} {
		blocks, err := quant.Quantise(nil, gpu.Q4_K, row)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range quant.Dequantise(nil, gpu.Q4_K, blocks) {
			if math.Abs(float64(x-row[i])) > 0.04 {
				t.Errorf("number %d is %v, want %v", i, x, row[i])
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		row[3] = float32(bad)
		if _, err := quant.Quantise(nil, gpu.Q8_0, row); err == nil {
			t.Errorf("%v was written", bad)
		}
	}
	if _, err := quant.Quantise(nil, gpu.Q8_0, row[:31]); err == nil {
		t.Error("31 numbers were written as blocks of 32")
	}
	if _, err := quant.Quantise(nil, gpu.Q6_K, row[:256]); err == nil {
		t.Error("a type that is not written was written")
	}
}

// TestDequantise compares every number of the real models with those of the gguf package, where
// ENGINE_REAL_MODELS names the folder that holds both.
func TestDequantise(t *testing.T) {
	folder := os.Getenv("ENGINE_REAL_MODELS")
	if folder == "" {
		t.Skip("ENGINE_REAL_MODELS is not set")
	}
	for golden, file := range map[string]string{
		"dequant_smollm2.json":     "SmolLM2-135M-Instruct.Q4_1.gguf",
		"dequant_gemma3-270m.json": "gemma-3-270m-q4_k_m.gguf",
	} {
		data, err := os.ReadFile(filepath.Join(sharedDir(t), "real", golden))
		var want struct {
			Cases []struct{ Name, SHA256 string }
		}
		if err == nil {
			err = json.Unmarshal(data, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		tensors, quantised := open(t, folder, file), 0
		for _, c := range want.Cases {
			tensor := tensors[c.Name]
			dtype, ok := types[tensor.Type]
			if !ok {
				continue
			}
			quantised++
			if got := digest(dtype, tensor.Data); got != c.SHA256 {
				t.Errorf("%s, %v: the numbers' hash is %s, want %s", c.Name, dtype, got, c.SHA256)
			}
		}
		t.Logf("%s: %d tensors", file, quantised)
		if quantised < 100 {
			t.Errorf("%s: only %d tensors were compared", file, quantised)
		}
	}
}

// digest is the hash of a tensor's numbers as float32.
func digest(dtype gpu.DType, data []byte) string {
	h := sha256.New()
	_, bytes := dtype.Block()
	var numbers []float32
	var raw []byte
	for len(data) > 0 {
		n := min(len(data), 4096*bytes)
		numbers, raw = quant.Dequantise(numbers[:0], dtype, data[:n]), raw[:0]
		for _, x := range numbers {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		h.Write(raw)
		data = data[n:]
	}
	return hex.EncodeToString(h.Sum(nil))
}
