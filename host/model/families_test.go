package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/model"
)

type object = map[string]any

// families are all architectures, without ForCausalLM.
var families = []string{
	"Gemma", "Gemma3", "Llama", "Mistral", "Mixtral", "Phi3", "Qwen2", "Qwen3",
}

// readTiny reads the configuration of a tiny model of a family.
func readTiny(t testing.TB, family string, changes object) (model.Config, error) {
	t.Helper()
	all := object{"architectures": []string{family + "ForCausalLM"}, "head_dim": 4}
	if strings.HasPrefix(family, "Gemma") {
		all["hidden_act"] = nil
	}
	maps.Copy(all, changes)
	return model.ReadConfig(fstest.MapFS{"config.json": {Data: tinyConfig(t, all)}})
}

// TestFamiliesRefuse: what a family does not compute is refused with the key named, by all or by
// those that do not read the key.
func TestFamiliesRefuse(t *testing.T) {
	sliding := []string{"sliding_attention"}
	for _, c := range []struct {
		changes object
		want    string
		but     string // families that take it
	}{
		{object{"quantization_config": object{"bits": 4}}, `"quantization_config": {"bits":4}`, ""},
		{object{"compression_config": object{"a": 1}}, `"compression_config": {"a":1}`, ""},
		{object{"attn_logit_softcapping": 50}, `"attn_logit_softcapping": 50`, ""},
		{object{"final_logit_softcapping": 30.0}, `"final_logit_softcapping": 30`, ""},
		{object{"attention_bias": true}, `"attention_bias": true`, ""},
		{object{"mlp_bias": true}, `"mlp_bias": true`, ""},
		{object{"clip_qkv": 8}, `"clip_qkv": 8`, ""},
		{object{"logit_scale": 0}, `"logit_scale": 0`, ""},
		{object{"use_bidirectional_attention": true}, `"use_bidirectional_attention"`, ""},
		{object{"dual_chunk_attention_config": object{"a": 1}}, `"dual_chunk_attention_`, ""},
		{object{"num_experts": 8}, `"num_experts": 8`, ""},
		{object{"num_local_experts": 8}, `"num_local_experts": 8`, "Mixtral"},
		{object{"partial_rotary_factor": 0.5}, `"partial_rotary_factor": 0.5`, "Phi3"},
		{object{"query_pre_attn_scalar": 1}, `"query_pre_attn_scalar": 1`, "Gemma3"},
		{object{"rope_local_base_freq": 100}, `"rope_local_base_freq": 100`, "Gemma3"},
		{object{"use_sliding_window": true}, `"use_sliding_window": true`, "Qwen2 Qwen3"},
		{object{"sliding_window": 8}, `"sliding_window": 8`,
			"Gemma3 Mistral Mixtral Phi3 Qwen2 Qwen3"},
		{object{"layer_types": sliding}, `"layer_types": ["sliding_a`, "Gemma3 Qwen2 Qwen3"},
		{object{"layer_types": []string{"chunked_attention"}}, `"chunked_attention"`, ""},
		{object{"layer_types": []string{}}, `"layer_types" names 0 layers of 1`,
			"Gemma Llama Mistral Mixtral Phi3"},
		{object{"hidden_act": "gelu"}, `"hidden_act": "gelu"`, "Gemma Gemma3"},
		{object{"hidden_activation": "relu"}, `"hidden_activation": "relu"`, ""},
		{object{"num_key_value_heads": 3}, `"num_attention_heads": 2 is no multiple`, ""},
		{object{"head_dim": 5}, `"head_dim" is 5`, ""},
		{object{"rms_norm_eps": 0}, `"rms_norm_eps" is 0`, ""},
	} {
		for _, family := range families {
			taken := slices.Contains(strings.Fields(c.but), family)
			_, err := readTiny(t, family, c.changes)
			if (err == nil) != taken || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %v: %v, want %s", family, c.changes, err, c.want)
			}
		}
	}
}

// TestFamiliesAcceptNeutralKeys: a key that asks for nothing is no reason to refuse.
func TestFamiliesAcceptNeutralKeys(t *testing.T) {
	for _, family := range families {
		_, err := readTiny(t, family, object{
			"attention_bias": false, "mlp_bias": nil, "partial_rotary_factor": 1.0,
			"attn_logit_softcapping": nil, "quantization_config": nil, "rope_scaling": nil,
			"rope_parameters": object{}, "use_sliding_window": false, "max_window_layers": 28,
			"layer_types": []string{"full_attention"}, "pruned_heads": object{}, "num_experts": 0,
			"sliding_window": nil, "vision_config": nil, "rope_theta": 10000, "use_cache": true,
			"attention_dropout": 0.1, "initializer_range": 0.02, "transformers_version": "4.50",
		})
		if err != nil {
			t.Errorf("%s: %v", family, err)
		}
	}
}

func TestRotationsRefused(t *testing.T) {
	const original = `"original_max_position_embeddings"`
	for _, c := range []struct{ scaling, want string }{
		{`"linear"`, `json: cannot`},
		{`{"rope_type":"dynamic","factor":4}`, `rope_type "dynamic" is not supported`},
		{`{"rope_type":"longrope","factor":4}`, `rope_type "longrope" is not supported`},
		{`{"type":"mrope"}`, `rope_type "mrope" is not supported`},
		{`{"factor":4}`, ``},
		{`{"type":"linear"}`, `"factor" is missing`},
		{`{"type":"linear","factor":0.5}`, `"factor" is 0.5; it must be at least 1`},
		{`{"type":"yarn","factor":-1}`, `"factor" is -1; it must be positive`},
		{`{"type":"llama3","factor":8,"low_freq_factor":1}`, `"high_freq_factor" is missing`},
		{`{"type":"llama3","factor":8,"high_freq_factor":4}`, `"low_freq_factor" is missing`},
		{`{"type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}`,
			original + ` is missing`},
		{`{"type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":1,` + original + `:8}`,
			`"high_freq_factor" is 1; it must be above "low_freq_factor"`},
		{`{"type":"yarn","factor":4,"finetuned":true}`, `"finetuned" is not supported`},
		{`{"type":"linear","factor":4,"short_factor":[1]}`, `"short_factor" is not supported`},
		{`{"type":"default","factor":4}`, `"factor" is not supported`},
		{`{"type":"yarn","factor":4,"attention_factor":0}`, `"attention_factor" is 0`},
		{`{"type":"yarn","factor":4,` + original + `:-1}`, original + ` is -1`},
	} {
		want := `"rope_scaling": ` + c.want
		if c.want == "" {
			want = `"rope_scaling" has no rope_type`
		}
		_, err := readTiny(t, "Llama", object{"rope_scaling": json.RawMessage(c.scaling)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", c.scaling, err, want)
		}
	}
	yarn, su := object{"type": "yarn", "factor": 4}, object{"type": "su", "factor": 4}
	for _, c := range []struct {
		family  string
		changes object
		want    string
	}{
		{"Llama", object{"rope_theta": 0.5, "rope_scaling": yarn}, "more than 1"},
		{"Llama", object{"rope_scaling": yarn, "rope_parameters": object{}}, "both"},
		{"Llama", object{"rope_theta": -1}, `"rope_theta" is -1; it must be positive`},
		{"Phi3", object{"rope_scaling": su}, `rope_type "su" is not supported`},
		{"Phi3", object{"rope_scaling": yarn}, `rope_type "yarn" is not supported`},
		{"Phi3", object{"partial_rotary_factor": 1.5}, `"partial_rotary_factor" is 1.5`},
		{"Phi3", object{"partial_rotary_factor": 0.25}, `1 of the 4 dimensions of a head would`},
		{"Gemma3", object{"rope_parameters": object{"full_attention": 1}}, "is not an object"},
		{"Gemma3", object{"sliding_window_pattern": 0}, `"sliding_window_pattern" is 0`},
		{"Mixtral", object{"num_local_experts": 70000}, `"num_local_experts" is 70000`},
		{"Mixtral", object{"num_experts_per_tok": 9}, `"num_experts_per_tok" is 9`},
		{"Mistral", object{"sliding_window": 0}, `"sliding_window" is 0; it must be between`},
	} {
		if _, err := readTiny(t, c.family, c.changes); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %v: %v, want %s", c.family, c.changes, err, c.want)
		}
	}
}

func TestWindows(t *testing.T) {
	both := []string{"sliding_attention", "full_attention"}
	for _, c := range []struct {
		family  string
		changes object
		window  int
		uniform bool
	}{
		{"Llama", nil, 0, false},
		{"Mistral", nil, 0, false}, // 4096 without the key, as wide as the context
		{"Mistral", object{"max_position_embeddings": 8192}, 4096, true},
		{"Mistral", object{"sliding_window": nil}, 0, false},
		{"Mistral", object{"sliding_window": 31}, 31, true},
		{"Mistral", object{"sliding_window": 32}, 0, false},
		{"Mixtral", object{"sliding_window": 8}, 8, true},
		{"Phi3", object{"sliding_window": 262144}, 0, false},
		{"Qwen2", object{"sliding_window": 8}, 0, false},
		{"Qwen2", object{"sliding_window": 8, "use_sliding_window": true}, 0, false},
		{"Qwen3", object{"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 0},
			8, true},
		{"Qwen2", object{"sliding_window": 8, "use_sliding_window": true, "layer_types": both,
			"num_hidden_layers": 2}, 8, false},
		{"Gemma3", object{"sliding_window": 8, "layer_types": both, "num_hidden_layers": 2},
			8, false},
		{"Gemma3", object{"sliding_window": 8, "num_hidden_layers": 5}, 8, true},
		{"Gemma3", object{"sliding_window": 8, "num_hidden_layers": 6}, 8, false},
	} {
		got, err := readTiny(t, c.family, c.changes)
		if err != nil || got.Window != c.window || got.UniformWindow != c.uniform {
			t.Errorf("%s with %v: window %d, uniform %v, %v; want %d, %v",
				c.family, c.changes, got.Window, got.UniformWindow, err, c.window, c.uniform)
		}
	}
}

func TestContextAndRotationInWords(t *testing.T) {
	yarn := object{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
	split := object{"full_attention": object{"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
		"sliding_attention": object{"rope_type": "default", "rope_theta": 5e3}}
	for _, c := range []struct {
		family  string
		changes object
		context int
		rope    string
	}{
		{"Llama", nil, 32, "theta=10000"},
		{"Llama", object{"rope_scaling": object{"type": "default"}}, 32, "theta=10000"},
		{"Llama", object{"rope_parameters": object{"rope_theta": 5e5}}, 32, "theta=500000"},
		{"Qwen2", object{"rope_scaling": yarn}, 128,
			"theta=10000 yarn factor=4 original_max_position_embeddings=32"},
		{"Qwen2", object{"rope_scaling": yarn, "max_position_embeddings": 512}, 512,
			"theta=10000 yarn factor=4 original_max_position_embeddings=32"},
		{"Qwen2", object{"rope_scaling": object{"type": "yarn", "factor": 2}}, 32,
			"theta=10000 yarn factor=2"},
		{"Llama", object{"rope_scaling": object{"type": "linear", "factor": 2.5}}, 32,
			"theta=10000 linear factor=2.5"},
		{"Phi3", object{"partial_rotary_factor": 0.5}, 32, "theta=10000 dims=2"},
		{"Phi3", object{"rope_parameters": object{"rope_type": "default", "rope_theta": 10000,
			"partial_rotary_factor": 0.5}}, 32, "theta=10000 dims=2"},
		{"Gemma3", nil, 32, "theta=1e+06; sliding layers: theta=10000"},
		{"Gemma3", object{"rope_parameters": split}, 32,
			"theta=1e+06 linear factor=8; sliding layers: theta=5000"},
	} {
		got, err := readTiny(t, c.family, c.changes)
		if err != nil || got.Context != c.context || got.Rope != c.rope {
			t.Errorf("%s with %v: context %d, rope %q, %v; want %d, %q",
				c.family, c.changes, got.Context, got.Rope, err, c.context, c.rope)
		}
	}
}

// TestGoldensSeeEachFeature changes one key of a random model at a time: the logits must move, or
// the golden files would not notice a wrong family.
func TestGoldensSeeEachFeature(t *testing.T) {
	for _, c := range []struct {
		model   string
		changes object
	}{
		{"phi3", object{"partial_rotary_factor": 0.5}}, {"phi3", object{"sliding_window": 39}},
		{"mixtral", object{"num_experts_per_tok": 1}},
		{"mixtral", object{"num_experts_per_tok": 3}},
		{"mixtral-window", object{"sliding_window": nil}},
		{"yarn", object{"rope_scaling": nil}},
		{"yarn", object{"rope_scaling": object{"type": "linear", "factor": 4.0}}},
		{"linear", object{"rope_scaling": nil}},
		{"llama3", object{"rope_parameters": object{"rope_theta": 5000}}},
		{"sinks", object{"sliding_window": 17}}, {"sinks", object{"sinks": 3}},
		{"qwen2-window", object{"max_window_layers": 2}},
		{"qwen2-window", object{"use_sliding_window": false}},
		{"gemma2", object{"attn_logit_softcapping": nil}},
		{"gemma2", object{"final_logit_softcapping": nil}},
		{"gemma2", object{"sliding_window": 13}}, {"gemma2", object{"query_pre_attn_scalar": 9}},
		{"gemma3", object{"query_pre_attn_scalar": 12}}, {"gemma3", object{"rope_scaling": nil}},
		{"gemma3", object{"rope_local_base_freq": 1e4}}, {"gemma3", object{"sinks": 0}},
		{"gemma3", object{"sliding_window_pattern": 2}},
	} {
		r := reference{model: "random/" + c.model}
		g := r.read(t)
		sinks := g.Sinks
		if n, ok := c.changes["sinks"].(int); ok {
			sinks = n
		}
		m := loadChanged(t, modelDir(t, r.model), c.changes, sinks)
		long := g.Cases[len(g.Cases)-1]
		rows := newSequence(t, m, 16, 0, len(long.PromptIDs)).run(long.PromptIDs, 512)
		moved := 0.0
		for i, want := range long.Logits {
			moved = max(moved, math.Abs(float64(rows[len(rows)-1][i]-want)))
		}
		if moved < 0.01 {
			t.Errorf("%s with %v: logits move by %.4f", c.model, c.changes, moved)
		}
	}
}

// loadChanged loads a model with some keys of its config.json changed.
func loadChanged(t *testing.T, dir string, changes object, sinks int) *model.Model {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var config object
	if err := json.Unmarshal(read("config.json"), &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, changes)
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.LoadFS(openDevice(t, cpu.Options{Threads: 1}), fstest.MapFS{
		"config.json": {Data: data}, "model.safetensors": {Data: read("model.safetensors")},
	}, model.Options{Sinks: sinks})
	if err == nil {
		_, err = m.NewKV(64, 16)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%v: %w", changes, err))
	}
	return m
}
