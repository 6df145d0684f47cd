package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// asLoader makes this program load the model in the folder it names and tell what that took.
const asLoader = "ENGINE_TEST_AS_LOADER"

// loadReport is what a loader tells, in bytes.
type loadReport struct{ Before, After, Most, Weights, Scratch int64 }

func loaderMain(folder string) int {
	var r loadReport
	device, err := cpu.Open(cpu.Options{Threads: 2})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r.Before, _, _ = residentIn("/")
	m, err := model.Load(device, folder, model.Options{MaxRows: 16,
		Admit: func(n model.Need) error {
			r.Weights, r.Scratch = n.Weights, n.Scratch
			return nil
		}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r.After, r.Most, _ = residentIn("/")
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_ = m.Close()
	return 0
}

// TestLoadingMemory: while a model is loaded it is in memory once, not as its file and packed as
// well; and what was predicted is what it takes.
func TestLoadingMemory(t *testing.T) {
	if _, _, known := residentIn("/"); !known {
		t.Skip("this system does not tell what a process has in memory")
	}
	const largest = 2 * 2048 * 512 * 4 // gate and up are one matrix
	folder := t.TempDir()
	stored := writeWideModel(t, folder, 6)
	for name, path := range map[string]string{"folder": folder, "file": ggufOf(t, folder)} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(self)
		command.Env = append(os.Environ(), asLoader+"="+path)
		command.Stderr = os.Stderr
		out, err := command.Output()
		if err != nil {
			t.Fatal(name, err)
		}
		var r loadReport
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		// The rest is the program's own: its pages, its heap, and pieces of slabs not used yet.
		const rest = 40 << 20
		need := r.Weights + r.Scratch
		if need < stored || r.Most-r.Before > need+largest+rest {
			t.Errorf("%s: at most %d MiB more than before; %d MiB were predicted, the file has %d",
				name, (r.Most-r.Before)>>20, need>>20, stored>>20)
		}
		if took := r.After - r.Before; took < need-rest || took > need+rest {
			t.Errorf("%s: it takes %d MiB, %d were predicted", name, took>>20, need>>20)
		}
		t.Logf("%s: %d MiB needed, %d taken, %d at most", name, need>>20,
			(r.After-r.Before)>>20, (r.Most-r.Before)>>20)
	}
}

// writeWideModel writes a model of few, large matrices, and returns their bytes.
func writeWideModel(t *testing.T, folder string, layers int) int64 {
	const hidden, inner, heads, vocabulary = 512, 2048, 8, 1024
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
		"hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "num_key_value_heads": %d, "vocab_size": %d,
		"max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000,
		"hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "float32",
		"bos_token_id": 1, "eos_token_id": 2}`,
		hidden, inner, layers, heads, heads, vocabulary)
	type entry struct {
		DType   string    `json:"dtype"`
		Shape   []int     `json:"shape"`
		Offsets [2]uint64 `json:"data_offsets"`
	}
	entries, at := map[string]entry{}, uint64(0)
	add := func(name string, shape ...int) {
		n := uint64(4)
		for _, x := range shape {
			n *= uint64(x)
		}
		entries[name] = entry{"F32", shape, [2]uint64{at, at + n}}
		at += n
	}
	add("model.embed_tokens.weight", vocabulary, hidden)
	add("model.norm.weight", hidden)
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range []string{"q", "k", "v", "o"} {
			add(p+"self_attn."+name+"_proj.weight", hidden, hidden)
		}
		add(p+"mlp.gate_proj.weight", inner, hidden)
		add(p+"mlp.up_proj.weight", inner, hidden)
		add(p+"mlp.down_proj.weight", hidden, inner)
		add(p+"input_layernorm.weight", hidden)
		add(p+"post_attention_layernorm.weight", hidden)
	}
	header, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(file, header...)
	body := make([]byte, at)
	for i := 0; i < len(body); i += 4 {
		binary.LittleEndian.PutUint32(body[i:], math.Float32bits(float32(i%97)/9700))
	}
	for name, data := range map[string][]byte{"config.json": []byte(config),
		"model.safetensors": append(file, body...)} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return int64(at)
}

// ggufOf writes the folder's model as one file, with the tokenizer of the embedded model.
func ggufOf(t *testing.T, folder string) string {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("../../host/model/embedded/checkpoint", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "m.gguf")
	got := invoke(t, "", "quantize", folder, file, "--type", "F32")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return file
}
