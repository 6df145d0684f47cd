package model

import "github.com/kvrelay/engine/gpu"

// architectures is the one table of what can be loaded: a line here and a file with the family's
// function is all that a new one takes. It is never written.
var architectures = map[string]family{
	"LlamaForCausalLM": llama,
}

// family interprets a configuration. It names tensors and numbers and touches no weights; the
// shared code in build.go and forward.go does the rest. Errors go to the settings.
type family func(*settings) *blueprint

// blueprint is everything about a model but its weights.
type blueprint struct {
	Config
	embedding  string // tensor, [Vocabulary][Hidden]
	embedScale float32
	layers     []layerBlueprint
	finalNorm  normBlueprint
	head       linearBlueprint // of no parts when the head is tied to the embedding
}

// layerBlueprint is one layer: h += out(attention(norm(h))), then h += down(glu(norm(h))), with
// optional norms of queries and keys and of what is added to h.
type layerBlueprint struct {
	attentionNorm      normBlueprint
	qkv                linearBlueprint // queries, keys, values
	queryNorm, keyNorm normBlueprint   // of each head; absent in most families
	rope               *gpu.Rope       // layers that rotate alike share one
	scale              float32
	window, sinks      int
	out                linearBlueprint
	outNorm            normBlueprint // absent in most families
	mlpNorm            normBlueprint
	gateUp             linearBlueprint
	activation         gpu.Activation
	down               linearBlueprint
	downNorm           normBlueprint // absent in most families
}

// normBlueprint is a root-mean-square norm; without a name there is none.
type normBlueprint struct {
	name   string // tensor, [dim]
	dim    int
	eps    float32
	offset float32
}

// linearBlueprint is one or more projections of the same input, stacked by output row.
type linearBlueprint struct {
	parts []part
	cols  int
	bias  bool // each part has name.bias beside name.weight
}

type part struct {
	name string
	rows int
}

// design finds the family and lets it work.
func design(s *settings) (*blueprint, error) {
	name, err := s.architecture()
	if err != nil {
		return nil, err
	}
	b := architectures[name](s)
	b.Architecture = name
	return b, s.finish(name)
}

// Limits of what a configuration may state: far beyond any model, and small enough that sizes
// computed from them stay within 64 bits.
const (
	maxWidth      = 1 << 20
	maxLayers     = 1 << 12
	maxHeads      = 1 << 12
	maxHeadDim    = 1 << 12
	maxVocabulary = 1 << 24
	maxContext    = 1 << 26
)

// commonConfig reads the keys that all families share.
func commonConfig(s *settings) Config {
	c := Config{
		Vocabulary:   s.count("vocab_size", 0, maxVocabulary),
		Layers:       s.count("num_hidden_layers", 0, maxLayers),
		Hidden:       s.count("hidden_size", 0, maxWidth),
		Intermediate: s.count("intermediate_size", 0, maxWidth),
		Heads:        s.count("num_attention_heads", 0, maxHeads),
		Context:      s.count("max_position_embeddings", 2048, maxContext),
		BOS:          -1,
	}
	c.KVHeads = s.count("num_key_value_heads", c.Heads, maxHeads)
	c.HeadDim = s.count("head_dim", max(1, c.Hidden/c.Heads), maxHeadDim)
	if c.Heads%c.KVHeads != 0 {
		s.fail(`"num_attention_heads": %d is no multiple of "num_key_value_heads": %d`,
			c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		s.fail(`"head_dim" is %d; rotary position embeddings need an even number`, c.HeadDim)
	}
	s.get("bos_token_id", &c.BOS)
	var eos tokenIDs
	s.get("eos_token_id", &eos)
	c.EOS = union(eos, nil)
	c.DType = storedType(s)
	return c
}

// storedType reads torch_dtype, or dtype as newer files call it. It serves to predict memory; the
// weights themselves say what they are.
func storedType(s *settings) gpu.DType {
	switch s.text("torch_dtype", s.text("dtype", "float32")) {
	case "float16":
		return gpu.F16
	case "bfloat16":
		return gpu.BF16
	}
	return gpu.F32
}

// activation reads the activation of the gate.
func activation(s *settings, key string) gpu.Activation {
	switch name := s.text(key, "silu"); name {
	case "silu", "swish":
		return gpu.SiLU
	case "gelu_pytorch_tanh":
		return gpu.GELUTanh
	default:
		s.fail(`%q: %q is not supported; supported are "silu" and "gelu_pytorch_tanh"`, key, name)
	}
	return gpu.SiLU
}
