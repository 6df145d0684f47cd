package model

// mistral is Mistral 7B and its kin: Llama with a sliding window in every layer. Newer ones have
// "sliding_window": null.
func mistral(s *settings) *blueprint {
	b := s.plain(variant{context: 131072, eps: 1e-6, theta: 10000})
	b.slide(s.window(4096), everyLayer)
	return b
}
