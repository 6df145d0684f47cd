package sample

// Adjust applies penalties and biases to logits [vocabulary], in place and before Pick. prompt and
// output are the sequence's tokens so far; those outside the vocabulary are ignored. The order is
// repetition, frequency, presence, bias. It does nothing when the parameters ask for nothing.
func (s *Sampler) Adjust(logits []float32, prompt, output []int32) {
	p := &s.params
	if !p.Adjusts() {
		return
	}
	if p.repeats() || p.FrequencyPenalty != 0 || p.PresencePenalty != 0 {
		s.penalise(logits, prompt, output)
	}
	for _, id := range s.biased {
		if int(id) < len(logits) {
			logits[id] += float32(p.LogitBias[id])
		}
	}
}

// penalise changes each token's logit once, by how often the output holds it.
func (s *Sampler) penalise(logits []float32, prompt, output []int32) {
	if s.seen == nil {
		s.seen = make(map[int32]int)
	}
	clear(s.seen)
	for _, id := range output {
		s.seen[id]++
	}
	p := &s.params
	if p.repeats() {
		for _, id := range prompt {
			s.seen[id] += 0
		}
	}
	// Each token's logit changes alone, so the order of the map does not show.
	for id, count := range s.seen {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		l := float64(logits[id])
		if p.repeats() {
			if l > 0 {
				l /= p.RepetitionPenalty
			} else {
				l *= p.RepetitionPenalty
			}
		}
		if count > 0 {
			l -= p.FrequencyPenalty*float64(count) + p.PresencePenalty
		}
		logits[id] = float32(l)
	}
}
