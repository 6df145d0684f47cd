package model_test

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// TestGoldenTDP: in the order of AMX every model still gives the reference's tokens and logits,
// those in bfloat16 and float16 by split products, the quantised ones as without it.
func TestGoldenTDP(t *testing.T) {
	for _, g := range goldens {
		g.most = max(g.most, 1e-3) // Of three parts of a float32, the least products are left out.
		t.Run(g.model, func(t *testing.T) {
			checkGolden(t, openDevice(t, cpu.Options{FloatActivations: true, TDP: true}), g)
		})
	}
}

// byType are models of each type that is not quantised.
var byType = []string{"stories260k/hf-f32", "stories260k/hf-f16", "w256-bf16"}

// TestSameBitsTDP: the promise of the package holds in the class tdp.
func TestSameBitsTDP(t *testing.T) {
	for _, name := range byType {
		t.Run(name, func(t *testing.T) {
			m := loadModel(t, openDevice(t, cpu.Options{TDP: true}), name, 16)
			prompt := make([]int32, 150)
			for i := range prompt {
				prompt[i] = int32(i*37%500 + 3)
			}
			checkSameBits(t, m, prompt, 16)
		})
	}
}

// TestDevicesGiveSameBitsTDP: the reference of the class, plain Go, AVX2 and AVX-512.
func TestDevicesGiveSameBitsTDP(t *testing.T) {
	prompt := []int32{1, 5, 9, 2, 40, 33, 17, 8, 300, 12, 4, 99, 250, 6, 3, 7, 55, 20, 11}
	for _, name := range byType {
		twin := loadModel(t, cpu.NewTwin(cpu.NumericsTDP), name, 16)
		want := newSequence(t, twin, 16, 0, len(prompt)).run(prompt, 512)
		for _, o := range []cpu.Options{{ISA: cpu.Go, Threads: 2}, {Threads: 1}, {Threads: 3},
			{ISA: cpu.AVX2, Threads: 2}} {
			o.TDP = true
			device, err := cpu.Open(o)
			if err != nil {
				continue // this processor lacks the instructions
			}
			m := loadModel(t, device, name, 16)
			got := newSequence(t, m, 16, 0, len(prompt)).run(prompt, 10)
			sameBits(t, fmt.Sprintf("%s %+v", name, o), got, want)
			if err := device.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNumericsOfWeights: only what the weights are computed with shows in a model's class, so that
// instances of other settings work together where those do not matter.
func TestNumericsOfWeights(t *testing.T) {
	integers, floats := cpu.Options{Threads: 1}, cpu.Options{Threads: 1, FloatActivations: true}
	tiles := cpu.Options{Threads: 1, TDP: true}
	for _, c := range []struct {
		name    string
		options cpu.Options
		want    string
	}{
		{"stories260k/hf-f16", integers, cpu.NumericsFMA},
		{"stories260k/hf-f16", floats, cpu.NumericsFMA},
		{"stories260k/hf-f16", tiles, cpu.NumericsTDP},
		{"gguf/w256-Q8_0.gguf", integers, cpu.NumericsInt8},
		{"gguf/w256-Q8_0.gguf", floats, cpu.NumericsFMA},
		{"gguf/w256-Q8_0.gguf", tiles, cpu.NumericsInt8},
	} {
		m, err := model.Load(openDevice(t, c.options), modelDir(t, c.name), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Numerics(); got != c.want {
			t.Errorf("%s, %+v: %s, want %s", c.name, c.options, got, c.want)
		}
	}
	// A converted model has the type that it was converted to.
	m, err := model.Load(openDevice(t, integers), modelDir(t, "gguf/w256-Q8_0.gguf"),
		model.Options{DType: as(gpu.BF16)})
	if err == nil && m.Numerics() != cpu.NumericsFMA {
		t.Errorf("quantised weights as bf16 are computed in %s", m.Numerics())
	}
}
