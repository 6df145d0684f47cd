package model

// qwen3 is Qwen 3: Llama with norms of each head's queries and keys.
func qwen3(s *settings) *blueprint {
	b := s.plain(variant{context: 32768, headDim: 128, eps: 1e-6, theta: 10000})
	b.normHeads()
	slideQwen(s, b)
	return b
}

// normHeads adds norms of queries and keys, before they turn, of the kind of the other norms.
func (b *blueprint) normHeads() {
	norm := b.finalNorm
	norm.dim = b.HeadDim
	for i := range b.layers {
		norm.name = inLayer(i, "self_attn.q_norm.weight")
		b.layers[i].queryNorm = norm
		norm.name = inLayer(i, "self_attn.k_norm.weight")
		b.layers[i].keyNorm = norm
	}
}
