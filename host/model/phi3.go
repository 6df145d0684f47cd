package model

// phi3 is Phi-3, 3.5 and 4: Llama with fused projections and a rotation that may leave a part of
// each head as it is. Its scalings of the rotation (longrope, once called su or yarn) depend on the
// length of the text and are refused.
func phi3(s *settings) *blueprint {
	b := s.plain(variant{context: 4096, eps: 1e-5, theta: 10000, partial: true, plainRope: true})
	b.slide(s.window(0), everyLayer)
	rows := (b.Heads + 2*b.KVHeads) * b.HeadDim
	for i := range b.layers {
		l := &b.layers[i]
		l.qkv.parts = []part{{inLayer(i, "self_attn.qkv_proj"), rows}}
		l.mlp.gateUp.parts = []part{{inLayer(i, "mlp.gate_up_proj"), 2 * b.Intermediate}}
	}
	return b
}
