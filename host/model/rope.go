package model

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/kvrelay/engine/gpu"
)

// rotation says where the rotation of some layers is written, and what holds where it is not.
type rotation struct {
	partial  bool    // partial_rotary_factor is read; else all of a head turns
	thetaKey string  // "" means rope_theta
	theta    float64 // without that key
	layers   string  // fullAttention or slidingAttention, where a family keeps the two apart
	plain    bool    // the family knows no scaling
}

// rope reads a rotation: pair i of a head turns by theta^(-2i/dims) radians a position, before
// scaling. It returns the schedule and says it in words. YaRN lengthens the context of c.
func (s *settings) rope(c *Config, r rotation) (*gpu.Rope, string) {
	if r.thetaKey == "" {
		r.thetaKey = "rope_theta"
	}
	key, in := s.rotationObject(r)
	theta := in.positive("rope_theta", s.positive(r.thetaKey, r.theta))
	rope, dims := &gpu.Rope{Scale: 1}, c.HeadDim
	if r.partial {
		dims = s.rotated(c.HeadDim, in)
	}
	for i := range dims / 2 {
		rope.Freqs = append(rope.Freqs, power(theta, -2*float64(i)/float64(dims)))
	}
	if r.layers == slidingAttention {
		c.localTheta = theta
	} else {
		c.theta = theta
	}
	words := fmt.Sprintf("theta=%g", theta)
	kind := in.text("rope_type", in.text("type", ""))
	scale, ok := scalings[kind]
	switch {
	case key == "":
	case kind == "" && !in.has("rope_theta"):
		s.fail("%q has no rope_type", key)
	case kind == "" || kind == "default":
	case !ok || r.plain:
		s.fail("%q: rope_type %q is not supported", key, kind)
	default:
		scale(in, rope, &scaled{config: c, theta: theta, dims: dims})
		words += " " + kind + in.numbers()
	}
	if dims != c.HeadDim {
		words += fmt.Sprintf(" dims=%d", dims)
	}
	s.leave(key, in)
	return rope, words
}

// rotated is how many dimensions of a head turn. Newer files write the share beside the scaling.
func (s *settings) rotated(headDim int, in *settings) int {
	const key = "partial_rotary_factor"
	share := in.positive(key, s.positive(key, 1))
	dims := int(float64(headDim) * min(share, 1))
	if share > 1 || dims < 2 || dims%2 != 0 {
		s.fail("%q is %v: %d of the %d dimensions of a head would turn; an even number can",
			key, share, dims, headDim)
		return 2
	}
	return dims
}

// rotationObject finds what is said of a rotation beside its base: rope_scaling, or rope_parameters
// as newer files call it, which may be one object for each kind of layer. An older rope_scaling is
// that of the layers that see everything. Without any the object is empty and has no key.
func (s *settings) rotationObject(r rotation) (key string, in *settings) {
	nothing := &settings{read: map[string]bool{}}
	old, recent := s.inner("rope_scaling"), s.inner("rope_parameters")
	if old != nil && recent != nil {
		s.fail(`both "rope_scaling" and "rope_parameters" are there`)
	}
	switch {
	case recent != nil && r.layers != "" && recent.has(r.layers):
		if part := recent.inner(r.layers); part != nil {
			return "rope_parameters." + r.layers, part
		}
		s.fail(`"rope_parameters": %q is not an object`, r.layers)
	case r.layers == slidingAttention:
	case recent != nil && len(recent.keys) > 0:
		return "rope_parameters", recent
	case old != nil && len(old.keys) > 0:
		return "rope_scaling", old
	}
	return "", nothing
}

// numbers lists the keys of a scaling and their values, alike however a file writes them; of a list
// its checksum.
func (s *settings) numbers() string {
	var words strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		var value any
		if err := json.Unmarshal(s.keys[key], &value); err != nil {
			continue
		}
		switch value.(type) {
		case float64, bool:
			if key != "rope_theta" && key != "partial_rotary_factor" {
				fmt.Fprintf(&words, " %s=%v", key, value)
			}
		case []any:
			fmt.Fprintf(&words, " %s=#%08x", key, crc32.ChecksumIEEE(s.keys[key]))
		}
	}
	return words.String()
}
