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
	}
	return x
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
	"add_cross_attention", "alibi", "attention_bias", "attention_chunk_size",
	"attention_multiplier", "attn_logit_softcapping", "embedding_multiplier",
	"final_logit_softcapping", "hidden_activation", "is_encoder_decoder", "layer_types",
	"logit_scale", "logits_scaling", "mlp_bias", "n_routed_experts", "no_rope_layers",
	"num_experts", "num_local_experts", "partial_rotary_factor", "qk_layernorm",
	"quantization_config", "query_pre_attn_scalar", "residual_multiplier", "rope_local_base_freq",
	"rope_parameters", "rope_scaling", "scale_embedding", "sliding_window", "text_config",
	"use_bidirectional_attention", "use_qk_norm", "use_sliding_window", "vision_config",
}

// neutral are the values by which a key asks for nothing.
var neutral = []string{"null", "false", "0", "0.0", "1.0", `""`, "[]", "{}"}

// finish returns the first error, or refuses the first altering key that nobody read.
func (s *settings) finish(architecture string) error {
	if s.err != nil {
		return s.err
	}
	for _, key := range altering {
		raw, ok := s.keys[key]
		if !ok || s.read[key] || slices.Contains(neutral, string(raw)) {
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
