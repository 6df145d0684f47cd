package model

import (
	"fmt"
	"math"
)

// llama is Llama 1 to 3.2 in the layout of the Hugging Face checkpoints: grouped-query attention,
// SwiGLU, a head of its own or tied to the embedding.
func llama(s *settings) *blueprint {
	c := commonConfig(s)
	c.Tied = s.flag("tie_word_embeddings", false)
	b := &blueprint{Config: c, embedding: "model.embed_tokens.weight", embedScale: 1}
	eps := float32(s.positive("rms_norm_eps", 1e-6))
	norm := func(name string) normBlueprint {
		return normBlueprint{name: name, dim: c.Hidden, eps: eps}
	}
	act, rope := activation(s, "hidden_act"), ropeFor(s, c.HeadDim)
	for i := range c.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		b.layers = append(b.layers, layerBlueprint{
			attentionNorm: norm(at + "input_layernorm.weight"),
			qkv: linearBlueprint{cols: c.Hidden, parts: []part{
				{at + "self_attn.q_proj", c.Heads * c.HeadDim},
				{at + "self_attn.k_proj", c.KVHeads * c.HeadDim},
				{at + "self_attn.v_proj", c.KVHeads * c.HeadDim},
			}},
			rope:  rope,
			scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
			out: linearBlueprint{cols: c.Heads * c.HeadDim,
				parts: []part{{at + "self_attn.o_proj", c.Hidden}}},
			mlpNorm: norm(at + "post_attention_layernorm.weight"),
			gateUp: linearBlueprint{cols: c.Hidden, parts: []part{
				{at + "mlp.gate_proj", c.Intermediate}, {at + "mlp.up_proj", c.Intermediate}}},
			activation: act,
			down: linearBlueprint{cols: c.Intermediate,
				parts: []part{{at + "mlp.down_proj", c.Hidden}}},
		})
	}
	b.finalNorm = norm("model.norm.weight")
	if !c.Tied {
		b.head = linearBlueprint{cols: c.Hidden, parts: []part{{"lm_head", c.Vocabulary}}}
	}
	return b
}
