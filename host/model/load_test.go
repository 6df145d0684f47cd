package model_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

// tinyConfig is a configuration that can be loaded, with the changes; nil takes a key away.
func tinyConfig(t testing.TB, changes map[string]any) []byte {
	t.Helper()
	config := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "hidden_act": "silu", "hidden_size": 8,
		"intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16,
		"max_position_embeddings": 32, "rms_norm_eps": 1e-5, "eos_token_id": 2,
	}
	maps.Copy(config, changes)
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// tensors are the shapes of tinyConfig's weights.
func tensors() map[string][]int {
	const layer = "model.layers.0."
	return map[string][]int{
		"model.embed_tokens.weight": {16, 8}, "lm_head.weight": {16, 8}, "model.norm.weight": {8},
		layer + "input_layernorm.weight": {8}, layer + "post_attention_layernorm.weight": {8},
		layer + "self_attn.q_proj.weight": {8, 8}, layer + "self_attn.k_proj.weight": {8, 8},
		layer + "self_attn.v_proj.weight": {8, 8}, layer + "self_attn.o_proj.weight": {8, 8},
		layer + "mlp.gate_proj.weight": {12, 8}, layer + "mlp.up_proj.weight": {12, 8},
		layer + "mlp.down_proj.weight": {8, 12},
	}
}

// zeros is a weight file of zeros, all F32 but those that types names.
func zeros(shapes map[string][]int, types map[string]string) []byte {
	var header []string
	at := 0
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		dtype, size := "F32", 4
		if other := types[name]; other != "" {
			dtype, size = other, 2
		}
		for _, n := range shapes[name] {
			size *= n
		}
		shape, _ := json.Marshal(shapes[name])
		header = append(header, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`,
			name, dtype, shape, at, at+size))
		at += size
	}
	text := "{" + strings.Join(header, ",") + "}"
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return append(out, make([]byte, at)...)
}

// folder is a checkpoint of zeros with a changed configuration.
func folder(t testing.TB, changes map[string]any) fstest.MapFS {
	t.Helper()
	return fstest.MapFS{"config.json": {Data: tinyConfig(t, changes)},
		"model.safetensors": {Data: zeros(tensors(), nil)}}
}

// wantError checks that loading fails and says want.
func wantError(t *testing.T, files fs.FS, want string) {
	t.Helper()
	d := openDevice(t, cpu.Options{Threads: 1})
	_, err := model.LoadFS(d, files, model.Options{})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %s", err, want)
	}
}

func TestLoadRefusesConfigurations(t *testing.T) {
	type object = map[string]any
	for want, changes := range map[string]object{
		`"architectures" must name one`:     {"architectures": nil},
		`"Bert" is not supported; `:         {"architectures": []string{"Bert"}},
		`"rope_scaling": rope_type "nope"`:  {"rope_scaling": object{"type": "nope"}},
		`"rope_scaling" has no rope_type`:   {"rope_scaling": object{"factor": 2}},
		`"rope_parameters": rope_type "x"`:  {"rope_parameters": object{"rope_type": "x"}},
		`"hidden_act": "relu"`:              {"hidden_act": "relu"},
		`"attention_bias": true`:            {"attention_bias": true},
		`"mlp_bias": true`:                  {"mlp_bias": true},
		`"partial_rotary_factor": 0.5`:      {"partial_rotary_factor": 0.5},
		`"num_local_experts": 8`:            {"num_local_experts": 8},
		`"quantization_config": {"bits":4`:  {"quantization_config": object{"bits": 4}},
		`"hidden_size" is missing`:          {"hidden_size": nil},
		`"hidden_size" is -8`:               {"hidden_size": -8},
		`"vocab_size" is 1099511627776`:     {"vocab_size": 1 << 40},
		`"num_attention_heads": 2 is no`:    {"num_key_value_heads": 3},
		`"head_dim" is 5`:                   {"head_dim": 5},
		`"rms_norm_eps" is -1`:              {"rms_norm_eps": -1},
		`"rope_theta": json: cannot unmars`: {"rope_theta": "high"},
		`[8 8], the configuration makes it`: {"head_dim": 8},
	} {
		wantError(t, folder(t, changes), want)
	}
	broken := folder(t, nil)
	broken["config.json"].Data = []byte(`{"hidden_size":`)
	wantError(t, broken, "config.json: unexpected end of JSON input")
	delete(broken, "config.json")
	wantError(t, broken, "config.json: file does not exist")
}

func TestLoadRefusesWeights(t *testing.T) {
	for want, change := range map[string]func(shapes map[string][]int, types map[string]string){
		`tensor "lm_head.weight" is missing`: func(s map[string][]int, _ map[string]string) {
			delete(s, "lm_head.weight")
		},
		`"model.norm.weight" has shape [9]`: func(s map[string][]int, _ map[string]string) {
			s["model.norm.weight"] = []int{9}
		},
		`"model.norm.weight" has shape [8 1]`: func(s map[string][]int, _ map[string]string) {
			s["model.norm.weight"] = []int{8, 1}
		},
		`"model.norm.weight" is I16`: func(_ map[string][]int, t map[string]string) {
			t["model.norm.weight"] = "I16"
		},
	} {
		shapes, types := tensors(), map[string]string{}
		change(shapes, types)
		files := folder(t, nil)
		files["model.safetensors"].Data = zeros(shapes, types)
		wantError(t, files, want)
	}
	_, err := model.LoadFS(openDevice(t, cpu.Options{}), folder(t, nil), model.Options{MaxRows: -1})
	if err == nil {
		t.Error("a negative budget was accepted")
	}
}

func TestConfig(t *testing.T) {
	files := folder(t, map[string]any{"torch_dtype": "bfloat16", "bos_token_id": 1,
		"attention_bias": false, "rope_scaling": nil})
	files["generation_config.json"] = &fstest.MapFile{Data: []byte(
		`{"eos_token_id": [2, 3], "temperature": 0.6, "top_k": 40}`)}
	c, err := model.ReadConfig(files)
	if err != nil {
		t.Fatal(err)
	}
	if c.HeadDim != 4 || c.KVHeads != 2 || c.Context != 32 || c.BOS != 1 || c.Tied ||
		!slices.Equal(c.EOS, []int32{2, 3}) || *c.Sampling.Temperature != 0.6 ||
		c.Sampling.TopP != nil || *c.Sampling.TopK != 40 {
		t.Errorf("%+v", c)
	}
	need := c.Need(model.Options{MaxRows: 10})
	weights := 2*(16*8*2+4*8*8+3*12*8) + 4*3*8
	if need.Weights != int64(weights) || need.Token != 2*2*4*4 || need.Scratch <= 0 {
		t.Errorf("%+v, want %d bytes of weights", need, weights)
	}
}

// TestFolderAndFS: mapped, read and sharded weights are the same model, other weights another.
func TestFolderAndFS(t *testing.T) {
	d := openDevice(t, cpu.Options{})
	shared := filepath.Join(sharedDir(t), "models", "stories260k")
	load := func(m *model.Model, err error) *model.Model {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	mapped := load(model.Load(d, filepath.Join(shared, "hf-f32"), model.Options{}))
	read := load(model.LoadFS(d, os.DirFS(filepath.Join(shared, "hf-f32")), model.Options{}))
	sharded := load(model.Load(d, filepath.Join(shared, "hf-f32-sharded"), model.Options{}))
	half := load(model.Load(d, filepath.Join(shared, "hf-f16"), model.Options{}))
	if mapped.Digest() != read.Digest() || mapped.Digest() != sharded.Digest() {
		t.Error("the same weights have different digests")
	}
	if mapped.Digest() == half.Digest() {
		t.Error("different weights have the same digest")
	}
}

func FuzzReadConfig(f *testing.F) {
	f.Add(tinyConfig(f, nil), []byte(`{"eos_token_id":[1,2]}`))
	for _, family := range families {
		f.Add(tinyConfig(f, map[string]any{"architectures": []string{family + "ForCausalLM"}}),
			[]byte(`{}`))
	}
	for _, g := range goldens {
		if !strings.HasPrefix(g.model, "random/") {
			continue
		}
		config, err := os.ReadFile(filepath.Join(modelDir(f, g.model), "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, []byte(`{"bos_token_id":0}`))
	}
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		c, err := model.ReadConfig(fstest.MapFS{"config.json": {Data: config},
			"generation_config.json": {Data: generation}})
		if err != nil {
			return
		}
		if c.HeadDim < 1 || c.Heads%c.KVHeads != 0 || c.Context < 1 || c.Window < 0 ||
			c.Window >= c.Context || c.UniformWindow && c.Window == 0 || c.Chosen > c.Experts ||
			c.Need(model.Options{}).Weights <= 0 || !strings.HasPrefix(c.Rope, "theta=") {
			t.Fatalf("accepted %+v", c)
		}
	})
}
