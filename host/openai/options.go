package openai

import (
	"math"
	"strconv"
)

// Options are the fields that completions and chats share. A nil pointer is a field that was left
// out or null: the model's default holds.
type Options struct {
	// Model is the name the client sent; "" when it sent none.
	Model       string
	Temperature *float64
	// TopP is never 0: on the wire that means the most likely token alone, as the smallest share.
	TopP *float64
	MinP *float64
	// TopK keeps all tokens when it is -1 or 0.
	TopK *int
	Seed *int64
	// MaxTokens bounds the output. max_completion_tokens wins over max_tokens; -1 is as left out.
	MaxTokens *int
	Stop      []string
	Penalties
	// MinTokens come before the output may end, N answers for each prompt.
	MinTokens, N *int
	// Logprobs asks for the log-probability of each token, and of the TopLogprobs likeliest.
	Logprobs    bool
	TopLogprobs int
	// Priority and PredictedOutput are hints for policies.
	Priority, PredictedOutput *int
	// Format restricts the output; nil does not.
	Format *Format
	// IgnoreEOS and PinPrompt come from debug_config (or ignore_eos itself).
	IgnoreEOS, PinPrompt bool
	Stream, IncludeUsage bool
	// ContinuousUsage asks for the numbers so far in every chunk of a stream.
	ContinuousUsage bool
	// ReturnTokenIDs asks for token_ids in each choice.
	ReturnTokenIDs bool
	// Emitted counts the last tokens of the prompt that are output already; micro-serving calls
	// alone have it.
	Emitted int
	// User is free text. In micro-serving calls it is the id of the request.
	User string
	// Unknown counts the fields that nobody knows. They are ignored.
	Unknown int

	hasMaxCompletion bool
}

// field reads one of the shared fields. It reports whether the name is one.
func (o *Options) field(m member, l Limits) (known bool, err *Error) {
	switch m.name {
	case "model":
		return true, m.text(&o.Model, MaxModel)
	case "temperature":
		return true, m.number(&o.Temperature, 0, 2)
	case "top_p":
		return true, o.topP(m.value)
	case "min_p":
		return true, m.number(&o.MinP, 0, 1)
	case "top_k":
		return true, m.count(&o.TopK, -1)
	case "seed":
		n, err := m.integer(math.MinInt64, math.MaxInt64)
		o.Seed = &n
		return true, err
	case "max_tokens", "max_completion_tokens":
		return true, o.maxTokens(m)
	case "stop":
		return true, o.stop(m.value, l)
	case "n":
		return true, o.answers(m.value, l)
	case "response_format":
		return true, o.responseFormat(m.value, l)
	case "best_of":
		return true, o.bestOf(m.value)
	case "min_tokens":
		return true, m.count(&o.MinTokens, 0)
	case "priority":
		n, err := m.integer(math.MinInt32, math.MaxInt32)
		priority := int(n)
		o.Priority = &priority
		return true, err
	case "predicted_output":
		return true, m.count(&o.PredictedOutput, 0)
	case "ignore_eos":
		return true, m.boolean(&o.IgnoreEOS)
	case "stream":
		return true, m.boolean(&o.Stream)
	case "stream_options":
		return true, o.streamOptions(m.value)
	case "return_token_ids":
		return true, m.boolean(&o.ReturnTokenIDs)
	case "user":
		return true, m.text(&o.User, MaxUser)
	case "debug_config":
		return true, o.debugConfig(m.value)
	}
	return o.Penalties.field(m)
}

func (o *Options) topP(v value) *Error {
	if err := v.number(&o.TopP, 0, 1); err != nil {
		return err
	}
	if *o.TopP == 0 {
		*o.TopP = math.SmallestNonzeroFloat64
	}
	return nil
}

func (o *Options) maxTokens(m member) *Error {
	var n *int
	if err := m.count(&n, -1); err != nil {
		return err
	}
	if *n == 0 {
		return m.invalid("is 0; it must be at least 1, or -1 for what the context leaves")
	}
	if *n == -1 {
		n = nil
	}
	switch completion := m.name == "max_completion_tokens"; {
	case completion:
		o.MaxTokens, o.hasMaxCompletion = n, true
	case !o.hasMaxCompletion:
		o.MaxTokens = n
	}
	return nil
}

func (o *Options) stop(v value, l Limits) *Error {
	o.Stop = nil
	add := func(v value) *Error {
		var s string
		if err := v.text(&s, MaxStopSize); err != nil {
			return err
		}
		if s == "" {
			return v.invalid("is empty; a stop string needs at least one character")
		}
		o.Stop = append(o.Stop, s)
		return nil
	}
	switch v.raw[0] {
	case '"':
		return add(v)
	case '[':
		return v.each(l.maxStop(), add)
	}
	return v.wrong("a string or an array of strings")
}

func (o *Options) streamOptions(v value) *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	for _, m := range members {
		switch {
		case m.null():
		case m.name == "include_usage":
			err = m.boolean(&o.IncludeUsage)
		case m.name == "include_obfuscation": // A hint.
		case m.name == "continuous_usage_stats":
			err = m.boolean(&o.ContinuousUsage)
		default:
			o.Unknown++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) debugConfig(v value) *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	for _, m := range members {
		switch {
		case m.null():
		case m.name == "ignore_eos":
			err = m.boolean(&o.IgnoreEOS)
		case m.name == "pinned_system_prompt":
			err = m.boolean(&o.PinPrompt)
		case m.name == "special_request", m.name == "disagg_config":
			err = unbuilt(m)
		case m.name == "grammar_execution_mode": // It has an effect only with a grammar.
		default:
			o.Unknown++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unbuilt refuses a field of a feature that does not exist here, unless it has one of the values
// that ask for nothing.
func unbuilt(m member, harmless ...string) *Error {
	if m.null() {
		return nil
	}
	for _, h := range harmless {
		if m.raw == h || sameNumber(m.raw, h) {
			return nil
		}
	}
	return Errorf(CodeUnsupportedParameter, m.path, "%s is not supported (byte %d)", m.path, m.at)
}

func sameNumber(a, b string) bool {
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err == nil && err2 == nil && x == y
}
