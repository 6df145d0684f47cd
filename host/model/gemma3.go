package model

// gemma3 is the text model of Gemma 3: Gemma with norms of queries and keys and of what a layer
// adds, and two kinds of layers: most see a sliding window and turn fast, every sixth sees
// everything and turns slowly.
func gemma3(s *settings) *blueprint {
	b := s.plain(variant{context: 131072, headDim: 256, tied: true, eps: 1e-6, theta: 1e6,
		normOffset: 1, activation: gemmaActivation, ropeOfLayers: fullAttention})
	b.scaleEmbedding()
	b.normHeads()
	pattern := s.count("sliding_window_pattern", 6, maxLayers)
	slides := s.sliding(b.Layers, func(layer int) bool { return (layer+1)%pattern != 0 })
	b.slide(s.window(4096), slides)
	local, words := s.rope(&b.Config, rotation{thetaKey: "rope_local_base_freq", theta: 10000,
		layers: slidingAttention})
	b.Rope += "; sliding layers: " + words
	scale := inverseRoot(s.positive("query_pre_attn_scalar", 256))
	for i := range b.layers {
		l := &b.layers[i]
		l.scale = scale
		if slides(i) {
			l.rope = local
		}
	}
	b.normSums()
	return b
}
