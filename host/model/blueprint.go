package model

import "github.com/kvrelay/engine/gpu"

// architectures is the one table of what can be loaded: a line here and a file with the family's
// function is all that a new one takes. It is never written.
var architectures = map[string]family{
	"Gemma2ForCausalLM":  gemma2,
	"Gemma3ForCausalLM":  gemma3,
	"GemmaForCausalLM":   gemma,
	"LlamaForCausalLM":   llama,
	"MistralForCausalLM": mistral,
	"MixtralForCausalLM": mixtral,
	"Phi3ForCausalLM":    phi3,
	"Qwen2ForCausalLM":   qwen2,
	"Qwen3ForCausalLM":   qwen3,
}

// family interprets a configuration. It names tensors and numbers and touches no weights; the
// shared code in build.go and forward.go does the rest. Errors go to the settings.
type family func(*settings) *blueprint

// blueprint is everything about a model but its weights.
type blueprint struct {
	Config
	embedding  string // tensor, [Vocabulary][Hidden]
	embedScale float32
	logitCap   float32 // soft bound of logits; 0 in most families
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
	scoreCap           float32 // soft bound of scores; 0 in most families
	window, sinks      int
	out                linearBlueprint
	outNorm            normBlueprint // absent in most families
	mlpNorm            normBlueprint
	mlp                mlpBlueprint    // of no parts in a layer of experts
	router             linearBlueprint // scores of the experts, in a layer that has them
	experts            []mlpBlueprint
	activation         gpu.Activation
	downNorm           normBlueprint // absent in most families
}

// mlpBlueprint is down(activation(gate) * up).
type mlpBlueprint struct{ gateUp, down linearBlueprint }

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
	if err := s.finish(name); err != nil {
		return nil, err
	}
	b.summarise()
	return b, nil
}

// tensors calls f for each tensor of the model in the order in which build takes them, with its
// shape: two numbers for a matrix, one for a vector.
func (b *blueprint) tensors(f func(name string, shape ...int)) {
	norm := func(n normBlueprint) {
		if n.name != "" {
			f(n.name, n.dim)
		}
	}
	linear := func(l linearBlueprint) {
		for _, p := range l.parts {
			f(p.name+".weight", p.rows, l.cols)
		}
		for _, p := range l.parts {
			if l.bias {
				f(p.name+".bias", p.rows)
			}
		}
	}
	f(b.embedding, b.Vocabulary, b.Hidden)
	for i := range b.layers {
		l := &b.layers[i]
		norm(l.attentionNorm)
		linear(l.qkv)
		norm(l.queryNorm)
		norm(l.keyNorm)
		linear(l.out)
		norm(l.outNorm)
		norm(l.mlpNorm)
		linear(l.mlp.gateUp)
		linear(l.mlp.down)
		linear(l.router)
		for _, e := range l.experts {
			linear(e.gateUp)
			linear(e.down)
		}
		norm(l.downNorm)
	}
	norm(b.finalNorm)
	linear(b.head)
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
	maxExperts    = 1 << 14 // of all layers together
)
