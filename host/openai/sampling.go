package openai

import (
	"math"
	"strconv"
)

// Penalties change the odds of tokens by what came before, or one by one.
type Penalties struct {
	PresencePenalty, FrequencyPenalty, RepetitionPenalty *float64
	// LogitBias is added to the logits of tokens; nil when none was given.
	LogitBias map[int32]float64
}

// field reads one of the penalties. It reports whether the name is one.
func (p *Penalties) field(m member) (known bool, err *Error) {
	switch m.name {
	case "presence_penalty":
		return true, m.number(&p.PresencePenalty, -2, 2)
	case "frequency_penalty":
		return true, m.number(&p.FrequencyPenalty, -2, 2)
	case "repetition_penalty":
		if err := m.number(&p.RepetitionPenalty, 0, math.MaxFloat32); err != nil {
			return true, err
		}
		if *p.RepetitionPenalty == 0 {
			return true, m.invalid("is 0; it must be above 0, and 1 is none")
		}
		return true, nil
	case "logit_bias":
		return true, p.logitBias(m.value)
	}
	return false, nil
}

func (p *Penalties) logitBias(v value) *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	p.LogitBias = make(map[int32]float64, len(members))
	for _, m := range members {
		id, bad := strconv.ParseUint(m.name, 10, 31)
		if bad != nil {
			return v.invalid("has the key %.40q; keys are token ids", m.name)
		}
		var bias *float64
		if err := m.number(&bias, -100, 100); err != nil {
			return err
		}
		p.LogitBias[int32(id)] = *bias
	}
	return nil
}

// answers reads n, the number of answers to each prompt.
func (o *Options) answers(v value, l Limits) *Error {
	if sameNumber(v.raw, "1") { // 1.0 asks for nothing.
		o.N = new(1)
		return nil
	}
	n, err := v.integer(1, math.MaxInt32)
	if err != nil {
		return err
	}
	if most := l.maxN(); n > int64(most) {
		return v.invalid("is %d; at most %d are allowed (api.max_n)", n, most)
	}
	o.N = new(int(n))
	return nil
}

// bestOf lets 1 pass, which asks for nothing.
func (o *Options) bestOf(v value) *Error {
	if sameNumber(v.raw, "1") {
		return nil
	}
	return Errorf(CodeUnsupportedParameter, v.path, "%s is not supported: it computes answers "+
		"that nobody sees; ask for n answers and choose among them (byte %d)", v.path, v.at)
}

// together checks the fields that bear on each other.
func (o *Options) together() *Error {
	if o.MinTokens != nil && o.MaxTokens != nil && *o.MinTokens > *o.MaxTokens {
		return Errorf(CodeInvalidValue, "min_tokens", "min_tokens is %d, more than max_tokens %d",
			*o.MinTokens, *o.MaxTokens)
	}
	return nil
}

// completionLogprobs reads the logprobs of a completion: how many of the likeliest tokens to list.
func (o *Options) completionLogprobs(v value) *Error {
	if v.raw == "false" {
		return nil
	}
	n, err := v.integer(0, maxTopLogprobs)
	o.Logprobs, o.TopLogprobs = true, int(n)
	return err
}

// chatLogprobs reads the two fields of a chat. It reports whether the name is one.
func (o *Options) chatLogprobs(m member) (known bool, err *Error) {
	switch m.name {
	case "logprobs":
		return true, m.boolean(&o.Logprobs)
	case "top_logprobs":
		n, err := m.integer(0, maxTopLogprobs)
		o.TopLogprobs = int(n)
		return true, err
	}
	return false, nil
}
