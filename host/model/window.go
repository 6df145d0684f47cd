package model

import (
	"fmt"
	"slices"
)

// The kinds of layers that layer_types names.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// maxWindow bounds sliding_window; files write large numbers where they mean none.
const maxWindow = 1 << 40

// window reads sliding_window: how many tokens, itself included, a token sees. null is none (0);
// what an absent key means is the family's own.
func (s *settings) window(absent int) int {
	if _, there := s.keys["sliding_window"]; !there {
		return absent
	}
	if s.read["sliding_window"] = true; !s.has("sliding_window") {
		return 0
	}
	return s.count("sliding_window", 0, maxWindow)
}

// sliding reads layer_types and returns which layers slide; without the key it is rule that says.
func (s *settings) sliding(layers int, rule func(layer int) bool) func(layer int) bool {
	var types []string
	if !s.get("layer_types", &types) {
		return rule
	}
	if len(types) != layers {
		s.fail(`"layer_types" names %d layers of %d`, len(types), layers)
		return rule
	}
	for i, name := range types {
		if name != fullAttention && name != slidingAttention {
			s.fail(`"layer_types": layer %d is %q; supported are %q and %q`,
				i, name, fullAttention, slidingAttention)
		}
	}
	return func(layer int) bool { return types[layer] == slidingAttention }
}

// slide gives some layers a window. One as wide as the context hides nothing and is none.
func (b *blueprint) slide(window int, slides func(layer int) bool) {
	if window >= b.Context {
		return
	}
	for i := range b.layers {
		if slides(i) {
			b.layers[i].window = window
		}
	}
}

func everyLayer(int) bool { return true }

// summarise says in the configuration what the layers do alike. Families have one width of window.
func (b *blueprint) summarise() {
	windows := func(l layerBlueprint) bool { return l.window > 0 }
	if i := slices.IndexFunc(b.layers, windows); i >= 0 {
		b.Window = b.layers[i].window
		b.UniformWindow = !slices.ContainsFunc(b.layers, func(l layerBlueprint) bool {
			return l.window != b.Window
		})
	}
	b.tensors(func(_ string, shape ...int) {
		if len(shape) == 2 {
			b.matrices += int64(shape[0]) * int64(shape[1])
		} else {
			b.vectors += int64(shape[0])
		}
	})
}

// keepSinks lets every window show the first tokens as well (Xiao and others, "Efficient Streaming
// Language Models with Attention Sinks", 2023). Positions stay absolute.
func (b *blueprint) keepSinks(sinks int) error {
	if sinks < 0 || sinks > b.Context {
		return fmt.Errorf("%d attention sinks; 0 to %d are possible", sinks, b.Context)
	}
	if sinks > 0 && b.Window == 0 {
		return fmt.Errorf("%d attention sinks for a model without a sliding window, which hides "+
			"none of them", sinks)
	}
	b.Sinks = sinks
	for i := range b.layers {
		if b.layers[i].window > 0 {
			b.layers[i].sinks = sinks
		}
	}
	return nil
}
