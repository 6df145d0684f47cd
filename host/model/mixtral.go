package model

import "fmt"

// mixtral is Mixtral: Mistral with several feed-forward parts in each layer, of which a row goes
// through the few that a router likes best.
func mixtral(s *settings) *blueprint {
	b := s.plain(variant{context: 131072, eps: 1e-5, theta: 1e6})
	b.slide(s.window(0), everyLayer)
	b.Experts = s.count("num_local_experts", 8, maxExperts/b.Layers)
	b.Chosen = s.count("num_experts_per_tok", 2, b.Experts)
	for i := range b.layers {
		l := &b.layers[i]
		l.mlp = mlpBlueprint{}
		l.router = linearBlueprint{cols: b.Hidden,
			parts: []part{{inLayer(i, "block_sparse_moe.gate"), b.Experts}}}
		for e := range b.Experts {
			at := inLayer(i, fmt.Sprintf("block_sparse_moe.experts.%d.", e))
			l.experts = append(l.experts, b.mlp(at+"w1", at+"w3", at+"w2"))
		}
	}
	return b
}
