package model

import (
	"fmt"
	"math"

	"github.com/kvrelay/engine/gpu"
)

// llama is Llama 1 to 3.2 in the layout of the Hugging Face checkpoints: grouped-query attention,
// SwiGLU, a head of its own or tied to the embedding.
func llama(s *settings) *blueprint {
	return s.plain(variant{context: 2048, eps: 1e-6, theta: 10000})
}

// variant is where a family of Llama's layout has defaults or habits of its own. The defaults are
// those of the family's class in the transformers library, whose files leave keys out.
type variant struct {
	context      int
	headDim      int // 0 means hidden_size / num_attention_heads
	tied         bool
	eps, theta   float64
	normOffset   float32
	activation   func(*settings) gpu.Activation // nil reads hidden_act
	partial      bool                           // partial_rotary_factor is read
	plainRope    bool                           // no scaling of the rotation is known
	ropeOfLayers string                         // which rotation plain reads, where there are two
}

// plain is Llama's layout. Families change what is different in theirs.
func (s *settings) plain(v variant) *blueprint {
	c := s.config(v)
	rope, words := s.rope(&c, rotation{partial: v.partial, theta: v.theta,
		layers: v.ropeOfLayers, plain: v.plainRope})
	c.Rope = words
	b := &blueprint{Config: c, embedding: "model.embed_tokens.weight", embedScale: 1}
	norm := normBlueprint{name: "model.norm.weight", dim: c.Hidden,
		eps: float32(s.positive("rms_norm_eps", v.eps))}
	norm.offset = s.normOffset(v.normOffset)
	b.finalNorm = norm
	like := layerBlueprint{rope: rope, activation: v.gate(s),
		scale: inverseRoot(float64(c.HeadDim))}
	for i := range c.Layers {
		l := like
		norm.name = inLayer(i, "input_layernorm.weight")
		l.attentionNorm = norm
		norm.name = inLayer(i, "post_attention_layernorm.weight")
		l.mlpNorm = norm
		l.qkv = linearBlueprint{cols: c.Hidden, parts: []part{
			{inLayer(i, "self_attn.q_proj"), c.Heads * c.HeadDim},
			{inLayer(i, "self_attn.k_proj"), c.KVHeads * c.HeadDim},
			{inLayer(i, "self_attn.v_proj"), c.KVHeads * c.HeadDim},
		}}
		l.out = linearBlueprint{cols: c.Heads * c.HeadDim,
			parts: []part{{inLayer(i, "self_attn.o_proj"), c.Hidden}}}
		l.mlp = c.mlp(inLayer(i, "mlp.gate_proj"), inLayer(i, "mlp.up_proj"),
			inLayer(i, "mlp.down_proj"))
		b.layers = append(b.layers, l)
	}
	if !c.Tied {
		b.head = linearBlueprint{cols: c.Hidden, parts: []part{{"lm_head", c.Vocabulary}}}
	}
	return b
}

// normOffset reads rms_norm_offset, which is added to the weights of norms. GGUF files alone have
// it: their norms of the Gemma families hold the sum already.
func (s *settings) normOffset(fallback float32) float32 {
	s.get("rms_norm_offset", &fallback)
	return fallback
}

// gate reads the activation.
func (v variant) gate(s *settings) gpu.Activation {
	if v.activation != nil {
		return v.activation(s)
	}
	return s.activation("hidden_act", "silu")
}

// inverseRoot is 1/√x, what scores are multiplied by.
func inverseRoot(x float64) float32 { return float32(1 / math.Sqrt(x)) }

// mlp names the three projections of a feed-forward part.
func (c *Config) mlp(gate, up, down string) mlpBlueprint {
	return mlpBlueprint{
		gateUp: linearBlueprint{cols: c.Hidden,
			parts: []part{{gate, c.Intermediate}, {up, c.Intermediate}}},
		down: linearBlueprint{cols: c.Intermediate, parts: []part{{down, c.Hidden}}},
	}
}

// inLayer is the full name of something of a layer.
func inLayer(layer int, name string) string {
	return fmt.Sprintf("model.layers.%d.%s", layer, name)
}

// config reads the keys that all families share.
func (s *settings) config(v variant) Config {
	c := Config{
		Vocabulary:   s.count("vocab_size", 0, maxVocabulary),
		Layers:       s.count("num_hidden_layers", 0, maxLayers),
		Hidden:       s.count("hidden_size", 0, maxWidth),
		Intermediate: s.count("intermediate_size", 0, maxWidth),
		Heads:        s.count("num_attention_heads", 0, maxHeads),
		Context:      s.count("max_position_embeddings", v.context, maxContext),
		Tied:         s.flag("tie_word_embeddings", v.tied),
		BOS:          -1,
	}
	c.KVHeads = s.count("num_key_value_heads", c.Heads, maxHeads)
	if v.headDim == 0 {
		v.headDim = max(1, c.Hidden/c.Heads)
	}
	c.HeadDim = s.count("head_dim", v.headDim, maxHeadDim)
	if c.Heads%c.KVHeads != 0 {
		s.fail(`"num_attention_heads": %d is no multiple of "num_key_value_heads": %d`,
			c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		s.fail(`"head_dim" is %d; rotary position embeddings need an even number`, c.HeadDim)
	}
	s.get("bos_token_id", &c.BOS)
	s.get("stored_bytes", &c.storedBytes)
	var eos tokenIDs
	s.get("eos_token_id", &eos)
	c.EOS = union(eos, nil)
	c.DType = s.storedType()
	return c
}

// storedType reads torch_dtype, or dtype as newer files call it. It serves to predict memory; the
// weights themselves say what they are.
func (s *settings) storedType() gpu.DType {
	switch s.text("torch_dtype", s.text("dtype", "float32")) {
	case "float16":
		return gpu.F16
	case "bfloat16":
		return gpu.BF16
	}
	return gpu.F32
}

// activation reads the activation of the gate.
func (s *settings) activation(key, fallback string) gpu.Activation {
	switch name := s.text(key, fallback); name {
	case "silu", "swish":
		return gpu.SiLU
	case "gelu_pytorch_tanh":
		return gpu.GELUTanh
	default:
		s.fail(`%q: %q is not supported; supported are "silu" and "gelu_pytorch_tanh"`, key, name)
	}
	return gpu.SiLU
}
