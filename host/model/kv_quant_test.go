package model_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// embeddedFolder is the smallest model whose heads are whole blocks.
const embeddedFolder = "embedded/checkpoint"

// embeddedQ8 is the embedded model on a device with keys and values in Q8_0.
func embeddedQ8(t testing.TB, device gpu.Device, pageSize int) *model.Model {
	t.Helper()
	m, err := model.Load(device, embeddedFolder, model.Options{KV: gpu.Q8_0})
	if err == nil {
		_, err = m.NewKV(8192/pageSize, pageSize)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// embeddedGolden is its reference.
func embeddedGolden(t testing.TB) golden {
	return readGolden(t, "embedded/testdata/golden.json")
}

// longQ8 is a prompt of the embedded model that crosses pages and blocks of attention.
func longQ8(t testing.TB) (long []int32) {
	for len(long) < longPrompt {
		for _, c := range embeddedGolden(t).Cases {
			long = append(append(long, c.PromptIDs...), c.GreedyIDs...)
		}
	}
	return long[:longPrompt]
}

// TestSameBitsQ8: what a slot of 8-bit numbers holds depends on its token alone, so the promise of
// the package holds for them too, transfers included.
func TestSameBitsQ8(t *testing.T) {
	for _, pageSize := range []int{16, 7} {
		m := embeddedQ8(t, openDevice(t, cpu.Options{}), pageSize)
		checkSameBits(t, m, longQ8(t), pageSize)
	}
}

// TestDevicesGiveSameBitsQ8: all instruction sets and the reference.
func TestDevicesGiveSameBitsQ8(t *testing.T) {
	prompt := longQ8(t)[:80]
	twin := embeddedQ8(t, cpu.NewTwin(cpu.NumericsInt8), 16)
	want := newSequence(t, twin, 16, 0, len(prompt)).run(prompt, 512)
	for _, o := range []cpu.Options{{ISA: cpu.Go, Threads: 2}, {Threads: 1}, {Threads: 3},
		{ISA: cpu.AVX2, Threads: 2}} {
		m := embeddedQ8(t, openDevice(t, o), 16)
		got := newSequence(t, m, 16, 0, len(prompt)).run(prompt, 50)
		sameBits(t, fmt.Sprintf("%+v", o), got, want)
	}
}

// TestQ8KV: the models whose heads are whole blocks keep to their reference as nearly as the data's
// readme allows for 8-bit activations.
func TestQ8KV(t *testing.T) {
	for _, g := range goldens {
		if !strings.Contains(g.model, "w256") {
			continue
		}
		t.Run(g.model, func(t *testing.T) {
			device := openDevice(t, cpu.Options{FloatActivations: true})
			m, err := model.Load(device, modelDir(t, g.model), model.Options{KV: gpu.Q8_0})
			if err == nil {
				_, err = m.NewKV(512, 16)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkForcedQ8(t, m, loadModel(t, device, g.model, 16), g.read(t))
		})
	}
	t.Run("embedded", func(t *testing.T) {
		device := openDevice(t, cpu.Options{})
		whole, err := model.Load(device, embeddedFolder, model.Options{})
		if err == nil {
			_, err = whole.NewKV(512, 16)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkForcedQ8(t, embeddedQ8(t, device, 16), whole, embeddedGolden(t))
	})
}

// checkForcedQ8 lets the reference's own tokens lead: at least 57 in 64 are the model's choice too,
// and its distributions are near those of the same model with keys and values in float32.
func checkForcedQ8(t *testing.T, m, whole *model.Model, g golden) {
	t.Helper()
	const most = 0.02 // mean divergence
	choices, all := 0, 0
	for _, c := range g.Cases {
		text := append(slices.Clone(c.PromptIDs), c.GreedyIDs[:len(c.GreedyIDs)-1]...)
		rows := newSequence(t, m, 16, 1, len(text)).run(text, 64)[len(c.PromptIDs)-1:]
		want := newSequence(t, whole, 16, 1, len(text)).run(text, 64)[len(c.PromptIDs)-1:]
		equal, divergence := 0, 0.0
		for i, id := range c.GreedyIDs {
			if argmax(rows[i]) == id {
				equal++
			}
			divergence += divergenceOfRows(want[i], rows[i]) / float64(len(rows))
		}
		t.Logf("%q: %d of %d choices equal, divergence %.2g", c.Prompt, equal, len(rows),
			divergence)
		if divergence > most || divergence <= 0 {
			t.Errorf("%q: divergence %v, at most %v is right, and more than 0", c.Prompt,
				divergence, most)
		}
		choices, all = choices+equal, all+len(rows)
	}
	if choices*64 < all*57 {
		t.Errorf("%d of %d choices equal, at least 57 of 64 are right", choices, all)
	}
}

// divergenceOfRows is Kullback and Leibler's of a row of logits from another's distribution.
func divergenceOfRows(want, got []float32) (d float64) {
	total := func(row []float32) (sum float64) {
		for _, x := range row {
			sum += math.Exp(float64(x))
		}
		return math.Log(sum)
	}
	a, b := total(want), total(got)
	for i := range want {
		p := float64(want[i]) - a
		d += math.Exp(p) * (p - float64(got[i]) + b)
	}
	return d
}

// TestQ8KVTakesItsBytes: 34 bytes for 32 numbers, in the prediction as in the pool.
func TestQ8KVTakesItsBytes(t *testing.T) {
	m := embeddedQ8(t, openDevice(t, cpu.Options{}), 16)
	c := m.Config()
	token := int64(2 * c.Layers * c.KVHeads * c.HeadDim / 32 * 34)
	if need := c.Need(model.Options{KV: gpu.Q8_0}).Token; need != token ||
		int64(m.KV().TokenBytes()*c.Layers) != token {
		t.Errorf("a token takes %d bytes by prediction and %d in a page, want %d", need,
			m.KV().TokenBytes()*c.Layers, token)
	}
}

// TestQ8KVNeedsWholeBlocks: a model whose heads are no whole blocks is refused before its weights
// are copied.
func TestQ8KVNeedsWholeBlocks(t *testing.T) {
	_, err := model.Load(openDevice(t, cpu.Options{}), modelDir(t, "random/qwen3"), model.Options{
		KV: gpu.Q8_0, Admit: func(model.Need) error { t.Error("admitted"); return nil }})
	if !errors.Is(err, model.ErrKVType) || !strings.Contains(err.Error(), "32") {
		t.Errorf("heads of 12 in q8_0: %v", err)
	}
}
