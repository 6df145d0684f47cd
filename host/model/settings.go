package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// settings are the keys of config.json. A family reads those it understands; the first error stays
// and every later read gives zero. What nobody read and is known to change the computation is
// refused.
type settings struct {
	keys map[string]json.RawMessage
	read map[string]bool
	err  error
}

func parseSettings(data []byte) (*settings, error) {
	s := &settings{read: map[string]bool{}}
	if err := json.Unmarshal(data, &s.keys); err != nil {
		return nil, err
	}
	return s, nil
}

// fail keeps the first error.
func (s *settings) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// has says whether a key is there and not null.
func (s *settings) has(key string) bool {
	raw, ok := s.keys[key]
	return ok && string(raw) != "null"
}

// get decodes a key into what to points to and says whether it was there.
func (s *settings) get(key string, to any) bool {
	s.read[key] = true
	if !s.has(key) {
		return false
	}
	if err := json.Unmarshal(s.keys[key], to); err != nil {
		s.fail("%q: %w", key, err)
		return false
	}
	return true
}

// count reads a positive integer of at most limit. Without a fallback (0) the key must be there.
func (s *settings) count(key string, fallback, limit int) int {
	n := fallback
	if !s.get(key, &n) && fallback == 0 {
		s.fail("%q is missing", key)
	}
	if n < 1 || n > limit {
		s.fail("%q is %d; it must be between 1 and %d", key, n, limit)
		return 1
	}
	return n
}

// positive reads a positive number.
func (s *settings) positive(key string, fallback float64) float64 {
	x := fallback
	s.get(key, &x)
	if !(x > 0) {
		s.fail("%q is %v; it must be positive", key, x)
		return 1
	}
	return x
}

// inner is the object under a key; nil when there is none.
func (s *settings) inner(key string) *settings {
	in := &settings{read: map[string]bool{}}
	if !s.get(key, &in.keys) {
		return nil
	}
	return in
}

// leave passes on the first error of an inner object, or refuses a key of it that nobody read and
// that asks for something.
func (s *settings) leave(key string, in *settings) {
	if in.err != nil {
		s.fail("%q: %w", key, in.err)
	}
	for _, name := range slices.Sorted(maps.Keys(in.keys)) {
		if !in.read[name] && !neutral(name, in.keys[name]) {
			s.fail("%q: %q is not supported", key, name)
		}
	}
}

func (s *settings) flag(key string, fallback bool) bool {
	x := fallback
	s.get(key, &x)
	return x
}

func (s *settings) text(key, fallback string) string {
	x := fallback
	s.get(key, &x)
	return x
}

// altering are keys that change what a model computes. A family that supports one reads it; the
// rest must be absent or neutral, for a wrong model that speaks is worse than none.
var altering = []string{
	"add_bias_linear", "add_cross_attention", "add_qkv_bias", "alibi", "attention_bias",
	"attention_chunk_size", "attention_multiplier", "attn_logit_softcapping", "clip_qkv",
	"compression_config", "dual_chunk_attention_config", "embedding_multiplier",
	"final_logit_softcapping", "hidden_activation", "is_encoder_decoder", "layer_types",
	"logit_scale", "logits_scaling", "mlp_bias", "moe_intermediate_size", "multi_query",
	"n_routed_experts", "n_shared_experts", "no_rope_layers", "norm_type", "num_experts",
	"num_experts_per_tok", "num_local_experts", "parallel_attn", "partial_rotary_factor",
	"pruned_heads", "qk_layernorm", "qkv_bias", "quantization_config", "query_pre_attn_scalar",
	"residual_multiplier", "rope_interleaved", "rope_local_base_freq", "rope_parameters",
	"rope_scaling", "rotary_pct", "scale_embedding", "scale_embeddings", "sliding_window",
	"sliding_window_pattern", "text_config", "use_bidirectional_attention",
	"use_parallel_residual", "use_qk_norm", "use_qkv_bias", "use_sliding_window", "vision_config",
}

// factors are altering keys that multiply something: 1 is neutral for them, 0 is not.
var factors = []string{
	"attention_multiplier", "embedding_multiplier", "logit_scale", "logits_scaling",
	"partial_rotary_factor", "residual_multiplier", "rotary_pct",
}

// neutral says whether a value asks for nothing: null, false, zero or empty, a factor of 1, layers
// that all look at everything.
func neutral(key string, raw json.RawMessage) bool {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return false
	}
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return slices.Contains(factors, key) && v == 1 || !slices.Contains(factors, key) && v == 0
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return !slices.ContainsFunc(v, func(x any) bool {
			return key != "layer_types" || x != fullAttention
		})
	}
	return false
}

// finish returns the first error, or refuses the first altering key that nobody read.
func (s *settings) finish(architecture string) error {
	if s.err != nil {
		return s.err
	}
	for _, key := range altering {
		raw, ok := s.keys[key]
		if !ok || s.read[key] || neutral(key, raw) {
			continue
		}
		var short bytes.Buffer
		if err := json.Compact(&short, raw); err != nil {
			return err
		}
		short.Truncate(min(short.Len(), 120))
		return fmt.Errorf("%q: %s is not supported for %s", key, short.Bytes(), architecture)
	}
	return nil
}

// architecture is the one class that the configuration names.
func (s *settings) architecture() (string, error) {
	var names []string
	s.get("architectures", &names)
	if s.err != nil {
		return "", s.err
	}
	if len(names) != 1 {
		return "", fmt.Errorf(`"architectures" must name one architecture; supported are %s`,
			supported())
	}
	if _, ok := architectures[names[0]]; !ok {
		return "", fmt.Errorf(`"architectures": %q is not supported; supported are %s`,
			names[0], supported())
	}
	return names[0], nil
}

// supported lists the table.
func supported() string { return fmt.Sprint(slices.Sorted(maps.Keys(architectures))) }
