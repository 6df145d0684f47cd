package model_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// as is a type for Options.
func as(d gpu.DType) *gpu.DType { return &d }

// runFirst runs the first tokens of a model loaded with options.
func runFirst(t *testing.T, name string, o model.Options) ([][]float32, *model.Model) {
	t.Helper()
	m, err := model.Load(openDevice(t, cpu.Options{Threads: 1}), modelDir(t, name), o)
	if err == nil {
		_, err = m.NewKV(8, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 5, 9, 2, 40, 33, 17, 8}
	return newSequence(t, m, 16, 0, len(tokens)).run(tokens, 512), m
}

// TestWeightsInAnotherType: widening changes no bit of the result, narrowing a little, and the
// digest tells the types apart.
func TestWeightsInAnotherType(t *testing.T) {
	for _, c := range []struct {
		name string
		to   gpu.DType
		most float64 // 0: the same bits
	}{
		{"random/mixtral", gpu.BF16, 0}, {"random/mixtral", gpu.F32, 0},
		{"random/gemma3", gpu.F32, 0}, {"random/gemma3", gpu.BF16, 0.2},
		{"random/gemma", gpu.F16, 0.01}, {"random/gemma", gpu.BF16, 0.1},
	} {
		want, stored := runFirst(t, c.name, model.Options{})
		got, converted := runFirst(t, c.name, model.Options{DType: as(c.to)})
		worst := 0.0
		for r := range want {
			for i, x := range want[r] {
				worst = max(worst, math.Abs(float64(got[r][i]-x)))
			}
		}
		if worst > c.most || worst == 0 && c.most > 0 {
			t.Errorf("%s as %v: logits move by %v, not up to %v", c.name, c.to, worst, c.most)
		}
		if stored.Digest() == converted.Digest() {
			t.Errorf("%s as %v has the digest of the stored type", c.name, c.to)
		}
	}
}

// TestAdmitAndProgress: the question comes before the first copy, with what the weights take; then
// progress ascends to the total.
func TestAdmitAndProgress(t *testing.T) {
	names := []string{"random/mixtral", "random/gemma3", "random/phi3", "random/qwen2-window"}
	for _, name := range names {
		c, err := model.ReadConfig(os.DirFS(modelDir(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, dtype := range []*gpu.DType{nil, as(gpu.F32)} {
			last, total, asked := int64(-1), int64(0), 0
			o := model.Options{MaxRows: 9, DType: dtype}
			want := c.Need(o)
			o.Admit = func(need model.Need) error {
				if asked++; need != want || last >= 0 {
					t.Errorf("%s: asked for %+v after %d bytes, want %+v", name, need, last, want)
				}
				return nil
			}
			o.Progress = func(done, all int64) error {
				if done < last || done > all || total > 0 && all != total {
					t.Errorf("%s: %d of %d bytes after %d of %d", name, done, all, last, total)
				}
				last, total = done, all
				return nil
			}
			runFirst(t, name, o)
			info, err := os.Stat(filepath.Join(modelDir(t, name), "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			if asked != 1 || last != total || total > info.Size() || total < info.Size()*8/10 {
				t.Errorf("%s: asked %d times, %d of %d bytes, the file has %d",
					name, asked, last, total, info.Size())
			}
		}
	}
	full := errors.New("no room")
	_, err := model.Load(openDevice(t, cpu.Options{}), modelDir(t, "random/phi3"), model.Options{
		Admit: func(model.Need) error { return full },
		Progress: func(int64, int64) error {
			t.Error("copied what was not admitted")
			return nil
		},
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	enough, heard := errors.New("enough"), 0
	_, err = model.Load(openDevice(t, cpu.Options{}), modelDir(t, "random/phi3"), model.Options{
		Progress: func(int64, int64) error {
			heard++
			return enough
		},
	})
	if !errors.Is(err, enough) || heard != 1 {
		t.Errorf("a load that was ended: error %v after %d reports", err, heard)
	}
}

func TestSinks(t *testing.T) {
	for _, c := range []struct {
		name  string
		sinks int
		want  string
	}{
		{"random/sinks", 641, "641 attention sinks; 0 to 640 are possible"},
		{"random/sinks", -1, "-1 attention sinks"},
		{"random/qwen3", 4, "4 attention sinks for a model without a sliding window"},
	} {
		o := model.Options{Sinks: c.sinks}
		_, err := model.Load(openDevice(t, cpu.Options{}), modelDir(t, c.name), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	_, without := runFirst(t, "random/sinks", model.Options{})
	_, with := runFirst(t, "random/sinks", model.Options{Sinks: 2})
	if c := with.Config(); c.Sinks != 2 || c.Window != 16 || with.Digest() == without.Digest() {
		t.Errorf("%+v", c)
	}
}

// TestLeftOverTensors: a checkpoint with a tensor that nothing takes was made for another
// computation. Frequencies, and the head of a model that ties it, say nothing new.
func TestLeftOverTensors(t *testing.T) {
	files := func(name string, changes map[string]any) fstest.MapFS {
		shapes := tensors()
		shapes[name] = []int{4}
		f := folder(t, changes)
		f["model.safetensors"].Data = zeros(shapes, nil)
		return f
	}
	for _, name := range []string{"model.layers.0.self_attn.q_proj.bias", "model.layers.1.x", "y"} {
		wantError(t, files(name, nil), `tensor "`+name+`" belongs to no part of Llama`)
	}
	for name, changes := range map[string]map[string]any{
		"model.layers.0.self_attn.rotary_emb.inv_freq": nil,
		"lm_head.weight": {"tie_word_embeddings": true},
	} {
		d := openDevice(t, cpu.Options{Threads: 1})
		if _, err := model.LoadFS(d, files(name, changes), model.Options{}); err != nil {
			t.Error(err)
		}
	}
}
