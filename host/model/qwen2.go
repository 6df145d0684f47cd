package model

// qwen2 is Qwen 1.5, 2 and 2.5: Llama with biases on queries, keys and values.
func qwen2(s *settings) *blueprint {
	b := s.plain(variant{context: 32768, eps: 1e-6, theta: 10000})
	for i := range b.layers {
		b.layers[i].qkv.bias = true
	}
	slideQwen(s, b)
	return b
}

// slideQwen gives the layers from max_window_layers on the sliding window, where use_sliding_window
// turns it on.
func slideQwen(s *settings, b *blueprint) {
	on, window := s.flag("use_sliding_window", false), s.window(4096)
	from := 28
	s.get("max_window_layers", &from)
	slides := s.sliding(b.Layers, func(layer int) bool { return layer >= from })
	if on {
		b.slide(window, slides)
	}
}
