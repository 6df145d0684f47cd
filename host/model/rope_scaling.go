package model

import (
	"math"

	"github.com/kvrelay/engine/gpu"
)

// scalings are what stretches a rotation beyond the context that a model was first trained for, by
// rope_type. Those that depend on the length of the text so far (dynamic, longrope) are not here:
// keys rotated for a short text would be wrong in a longer one. It is never written.
var scalings = map[string]func(in *settings, rope *gpu.Rope, of *scaled){
	"factors": factorsScaling,
	"linear":  linearScaling,
	"llama3":  llama3Scaling,
	"yarn":    yarnScaling,
}

// originalContext is the key with the positions of the first training.
const originalContext = "original_max_position_embeddings"

// scaled is what a scaling must know of the rotation beside its own keys.
type scaled struct {
	config *Config
	theta  float64
	dims   int
}

// need fails unless the keys are there.
func (s *settings) need(keys ...string) {
	for _, key := range keys {
		if !s.has(key) {
			s.fail("%q is missing", key)
		}
	}
}

// factor reads by how much positions are stretched.
func (s *settings) factor() float64 {
	s.need("factor")
	f := s.positive("factor", 1)
	if f < 1 {
		s.fail(`"factor" is %v; it must be at least 1`, f)
	}
	return f
}

// linearScaling turns everything slower.
func linearScaling(in *settings, rope *gpu.Rope, _ *scaled) {
	factor := in.factor()
	for i, f := range rope.Freqs {
		rope.Freqs[i] = f / factor
	}
}

// factorsScaling divides each frequency by a number of its own, as GGUF files hold them.
func factorsScaling(in *settings, rope *gpu.Rope, _ *scaled) {
	var factors []float64
	in.get("factors", &factors)
	if len(factors) != len(rope.Freqs) {
		in.fail(`"factors" has %d numbers for %d frequencies`, len(factors), len(rope.Freqs))
		return
	}
	for i, f := range factors {
		if !(f > 0) {
			in.fail(`"factors" holds %v; all must be positive`, f)
			return
		}
		rope.Freqs[i] /= f
	}
}

// llama3Scaling is that of Llama 3.1: pairs that turned often in the original context stay, those
// that turned seldom are slowed down by factor, and between the two it goes over smoothly.
func llama3Scaling(in *settings, rope *gpu.Rope, of *scaled) {
	factor := in.factor()
	in.need("low_freq_factor", "high_freq_factor", originalContext)
	low, high := in.positive("low_freq_factor", 1), in.positive("high_freq_factor", 4)
	original := float64(in.count(originalContext, 1, maxContext))
	if high <= low {
		in.fail(`"high_freq_factor" is %v; it must be above "low_freq_factor"`, high)
		return
	}
	for i, f := range rope.Freqs {
		turns := float64(original*f) / (2 * math.Pi)
		switch slow := f / factor; {
		case turns < low:
			rope.Freqs[i] = slow
		case turns <= high:
			keep := (turns - low) / (high - low)
			rope.Freqs[i] = float64((1-keep)*slow) + float64(keep*f)
		}
	}
}

// yarnScaling is YaRN (Peng and others, "YaRN: Efficient Context Window Extension of Large Language
// Models", 2023): as llama3Scaling by the pair's number instead of its turns, and scores are
// multiplied by Scale². The context becomes factor times the original one where the file names it.
func yarnScaling(in *settings, rope *gpu.Rope, of *scaled) {
	factor := in.factor()
	fast, slow := in.positive("beta_fast", 32), in.positive("beta_slow", 1)
	original := in.count(originalContext, of.config.Context, maxContext)
	if in.has(originalContext) {
		stretched := int(min(math.Floor(float64(original)*factor), maxContext))
		of.config.Context = max(of.config.Context, stretched)
	}
	if of.theta <= 1 {
		in.fail(`"rope_theta" is %v; YaRN needs more than 1`, of.theta)
		return
	}
	pair := func(turns float64) float64 { // the pair that turns so often in the original context
		period := float64(original) / float64(turns*2*math.Pi)
		return float64(float64(of.dims)*logarithm(period)) / float64(2*logarithm(of.theta))
	}
	from, to := pair(fast), pair(slow)
	if in.flag("truncate", true) {
		from, to = math.Floor(from), math.Ceil(to)
	}
	from, to = max(from, 0), min(to, float64(of.dims-1))
	if from == to {
		to += 0.001
	}
	for i, f := range rope.Freqs {
		stretch := min(max((float64(i)-from)/(to-from), 0), 1)
		rope.Freqs[i] = float64(f/factor*stretch) + float64(f*(1-stretch))
	}
	rope.Scale = float32(in.attentionFactor(factor))
}

// attentionFactor is what YaRN multiplies queries and keys by.
func (s *settings) attentionFactor(factor float64) float64 {
	grow := func(by float64) float64 { return float64(float64(0.1*by)*logarithm(factor)) + 1 }
	fallback := grow(1)
	if s.has("mscale") && s.has("mscale_all_dim") {
		fallback = grow(s.positive("mscale", 1)) / grow(s.positive("mscale_all_dim", 1))
	}
	return s.positive("attention_factor", fallback)
}
