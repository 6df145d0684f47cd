package gguf

import (
	"regexp"
	"strings"
)

// metadataKeys are what a file calls the keys of config.json that are made from it, after the
// prefix of its architecture. It is never written.
var metadataKeys = map[string]string{
	"num_hidden_layers":                "block_count",
	"hidden_size":                      "embedding_length",
	"num_attention_heads":              "attention.head_count",
	"num_key_value_heads":              "attention.head_count_kv",
	"head_dim":                         "attention.key_length",
	"intermediate_size":                "feed_forward_length",
	"max_position_embeddings":          "context_length",
	"rms_norm_eps":                     "attention.layer_norm_rms_epsilon",
	"rope_theta":                       "rope.freq_base",
	"partial_rotary_factor":            "rope.dimension_count",
	"rope_scaling":                     "rope.scaling",
	"rope_type":                        "rope.scaling.type",
	"factor":                           "rope.scaling.factor",
	"original_max_position_embeddings": "rope.scaling.original_context_length",
	"attention_factor":                 "rope.scaling.attn_factor",
	"sliding_window":                   "attention.sliding_window",
	"sliding_window_pattern":           "attention.sliding_window_pattern",
	"rope_local_base_freq":             "rope.freq_base_swa",
	"attn_logit_softcapping":           "attn_logit_softcapping",
	"final_logit_softcapping":          "final_logit_softcapping",
	"num_local_experts":                "expert_count",
	"num_experts_per_tok":              "expert_used_count",
}

var quoted = regexp.MustCompile(`"[\w.]+"`)

// inOwnWords is an error about the folder that a file stands for, told of the file: a reader who
// never saw the folder has to find what is meant.
type inOwnWords struct {
	folder       error
	architecture string
	naming       *Naming
}

func (e inOwnWords) Unwrap() error { return e.folder }

func (e inOwnWords) Error() string {
	text := quoted.ReplaceAllStringFunc(e.folder.Error(), func(name string) string {
		return `"` + e.name(strings.Trim(name, `"`)) + `"`
	})
	return strings.NewReplacer(
		"config.json: ", "metadata: ", "config.json describes it", "its metadata describe it",
		"the configuration makes", "the metadata make").Replace(text)
}

// name is what the file calls a key or a tensor of the folder.
func (e inOwnWords) name(folder string) string {
	if key, ok := metadataKeys[folder]; ok {
		return e.architecture + "." + key
	}
	switch folder {
	case "vocab_size", "factors":
		return map[string]string{"vocab_size": embeddingName, "factors": factorsName}[folder]
	case "bos_token_id", "eos_token_id":
		return tokenizerPrefix + folder
	}
	if tensor, _, err := e.naming.Name(folder); err == nil {
		return tensor
	}
	return folder
}
