package gguf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// family is how a GGUF architecture relates to the Hugging Face class that it was made from.
type family struct {
	class string
	// turned says that the rows of queries and keys were reordered for a rotation of adjacent
	// pairs. They are put back, so that the class computes what it always does.
	turned bool
	// names are those of tensors, after "blk.N.", that are called otherwise than in others.
	names map[string]string
	// settle adds what the family's configuration has beside the common keys.
	settle func(c *configuration)
}

// families is the table of architectures. It is never written.
var families = map[string]family{
	"llama":  {class: "LlamaForCausalLM", turned: true, settle: settleLlama},
	"qwen2":  {class: "Qwen2ForCausalLM"},
	"qwen3":  {class: "Qwen3ForCausalLM"},
	"gemma":  {class: "GemmaForCausalLM", settle: settleGemma},
	"gemma2": {class: "Gemma2ForCausalLM", names: gemmaNames, settle: settleGemma2},
	"gemma3": {class: "Gemma3ForCausalLM", names: gemmaNames, settle: settleGemma3},
	"phi3": {class: "Phi3ForCausalLM", settle: settlePhi3,
		names: map[string]string{"ffn_up": "mlp.gate_up_proj"}},
}

// gemmaNames are those of the Gemma families with four norms a layer.
var gemmaNames = map[string]string{
	"ffn_norm":            "pre_feedforward_layernorm",
	"post_attention_norm": "post_attention_layernorm",
	"post_ffw_norm":       "post_feedforward_layernorm",
}

// family finds the file's own.
func (f *File) family() (string, family, error) {
	k := &keys{file: f}
	name := k.text("general.architecture", "")
	if k.err == nil && name == "" {
		k.err = fmt.Errorf(`"general.architecture" is missing: this file is not a model`)
	}
	if k.err != nil {
		return "", family{}, k.err
	}
	of, ok := families[name]
	if !ok {
		return "", of, fmt.Errorf(`"general.architecture": %q is not supported; supported are %s`,
			name, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	return name, of, nil
}

// What the metadata of a family does not say, with its source: the configurations of the original
// checkpoints as the transformers library publishes and completes them (Gemma2Config,
// Gemma3TextConfig), and for the query scale of the largest models llama.cpp's table of sizes.
const (
	// Gemma3LocalTheta is the base of the rotation in layers with a sliding window.
	Gemma3LocalTheta = 10000
	// Gemma3Pattern: every sixth layer sees everything; Gemma2Pattern: every second, from the
	// second on.
	Gemma3Pattern, Gemma2Pattern = 6, 2
	// gemma3Layers27B and gemma2Layers27B tell the 27B models, whose scores are divided by the
	// root of hidden/heads and not of the head's dimensions.
	gemma3Layers27B, gemma2Layers27B = 62, 46
	// gemma2Caps are the soft caps of scores and logits where a file leaves them out.
	gemma2ScoreCap, gemma2LogitCap = 50, 30
)

// settleGemma: the norms of the file hold 1 + w, where the class expects w.
func settleGemma(c *configuration) { c.set("rms_norm_offset", 0) }

func settleGemma2(c *configuration) {
	settleGemma(c)
	c.set("sliding_window", c.own("attention.sliding_window", 4096))
	c.set("attn_logit_softcapping", c.number("attn_logit_softcapping", gemma2ScoreCap))
	c.set("final_logit_softcapping", c.number("final_logit_softcapping", gemma2LogitCap))
	c.set("query_pre_attn_scalar", c.queryScale(gemma2Layers27B))
}

func settleGemma3(c *configuration) {
	settleGemma(c)
	c.set("sliding_window", c.own("attention.sliding_window", 0))
	c.set("sliding_window_pattern", c.own("attention.sliding_window_pattern", Gemma3Pattern))
	c.set("rope_local_base_freq", c.number("rope.freq_base_swa", Gemma3LocalTheta))
	c.set("query_pre_attn_scalar", c.queryScale(gemma3Layers27B))
}

// queryScale is what scores are divided by the root of.
func (c *configuration) queryScale(largest int) int {
	if c.layers == largest {
		return c.hidden / c.heads
	}
	return c.headDim
}

// QueryScale is the same for a model to be written: files cannot say another number.
func QueryScale(architecture string, layers, hidden, heads, headDim int) int {
	c := &configuration{layers: layers, hidden: hidden, heads: heads, headDim: headDim}
	switch architecture {
	case "gemma2":
		return c.queryScale(gemma2Layers27B)
	case "gemma3":
		return c.queryScale(gemma3Layers27B)
	}
	return headDim
}

// settleLlama: a file with experts is a Mixtral, one with a window a Mistral.
func settleLlama(c *configuration) {
	switch {
	case c.has("expert_count") && c.number("expert_count", 0) > 0:
		c.set("architectures", []string{"MixtralForCausalLM"})
		c.set("num_local_experts", c.own("expert_count", 0))
		c.set("num_experts_per_tok", c.own("expert_used_count", 0))
	case c.number("attention.sliding_window", 0) > 0:
		c.set("architectures", []string{"MistralForCausalLM"})
		c.set("sliding_window", c.own("attention.sliding_window", 0))
	}
}

func settlePhi3(c *configuration) {
	if c.number("attention.sliding_window", 0) > 0 {
		c.set("sliding_window", c.own("attention.sliding_window", 0))
	}
	if dims := c.own("rope.dimension_count", c.headDim); dims != c.headDim {
		c.set("partial_rotary_factor", float64(dims)/float64(c.headDim))
	}
	if _, ok := c.tensor("rope_factors_long.weight"); ok {
		c.set("rope_scaling", map[string]any{"rope_type": "longrope"})
	}
}
