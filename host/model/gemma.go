package model

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// gemma is Gemma 1: Llama with norms that multiply by 1+w, GELU in the gate, and embeddings
// multiplied by the square root of their width.
func gemma(s *settings) *blueprint {
	b := s.plain(variant{context: 8192, headDim: 256, tied: true, eps: 1e-6, theta: 10000,
		normOffset: 1, activation: gemmaActivation})
	b.scaleEmbedding()
	return b
}

// scaleEmbedding multiplies the embeddings by √Hidden, rounded to float32 alone. Implementations
// that compute in bfloat16 round it to that (25.25 for 25.298 where Hidden is 640); everything is
// float32 here, as in a run of the reference in that precision.
func (b *blueprint) scaleEmbedding() { b.embedScale = float32(math.Sqrt(float64(b.Hidden))) }

// gemmaActivation reads hidden_activation. Old files lack it and say "gelu" under hidden_act, where
// they mean the approximation by tanh.
func gemmaActivation(s *settings) gpu.Activation {
	if s.has("hidden_activation") || s.text("hidden_act", "gelu") == "gelu" {
		return s.activation("hidden_activation", "gelu_pytorch_tanh")
	}
	return s.activation("hidden_act", "")
}
