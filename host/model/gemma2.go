package model

// gemma2 is Gemma 2: Gemma with norms of what a layer adds, a sliding window in every other layer,
// from the first on, and soft bounds of scores and of logits.
func gemma2(s *settings) *blueprint {
	b := s.plain(variant{context: 8192, headDim: 256, tied: true, eps: 1e-6, theta: 10000,
		normOffset: 1, activation: gemmaActivation})
	b.scaleEmbedding()
	b.slide(s.window(4096), s.sliding(b.Layers, func(layer int) bool { return layer%2 == 0 }))
	scale := inverseRoot(s.positive("query_pre_attn_scalar", 256))
	scores := s.bound("attn_logit_softcapping", 50)
	b.logitCap = s.bound("final_logit_softcapping", 30)
	for i := range b.layers {
		b.layers[i].scale, b.layers[i].scoreCap = scale, scores
	}
	b.normSums()
	return b
}

// bound reads a soft bound; null is none (0).
func (s *settings) bound(key string, absent float64) float32 {
	if _, there := s.keys[key]; there && !s.has(key) {
		s.read[key] = true
		return 0
	}
	return float32(s.positive(key, absent))
}

// normSums norms what attention and feed-forward part add, in layers of the Gemma families.
func (b *blueprint) normSums() {
	norm := b.finalNorm
	for i := range b.layers {
		l := &b.layers[i]
		norm.name = inLayer(i, "post_attention_layernorm.weight")
		l.outNorm = norm
		norm.name = inLayer(i, "pre_feedforward_layernorm.weight")
		l.mlpNorm = norm
		norm.name = inLayer(i, "post_feedforward_layernorm.weight")
		l.downNorm = norm
	}
}
