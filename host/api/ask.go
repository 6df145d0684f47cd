package api

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/sample"
)

// ask builds what the source is asked, but for the prompt: from the fields, the headers and the
// model's defaults.
func (s *Server) ask(x *exchange, m *Model, o *openai.Options) (generation.Request, *openai.Error) {
	d := m.Defaults
	r := generation.Request{
		ID: o.User, RequestID: x.id, MaxTokens: value(o.MaxTokens, d.MaxTokens),
		Emitted: o.Emitted, Traceparent: x.span.Context(),
		MinTokens: value(o.MinTokens, 0), Logprobs: o.Logprobs, TopLogprobs: o.TopLogprobs,
		IgnoreEOS: o.IgnoreEOS, PinPrompt: o.PinPrompt,
		Sampling: sample.Params{
			Temperature: value(o.Temperature, d.Temperature),
			TopP:        value(o.TopP, d.TopP), MinP: value(o.MinP, d.MinP),
			TopK:              value(o.TopK, d.TopK),
			RepetitionPenalty: value(o.RepetitionPenalty, 0),
			FrequencyPenalty:  value(o.FrequencyPenalty, 0),
			PresencePenalty:   value(o.PresencePenalty, 0), LogitBias: o.LogitBias,
		},
	}
	for id := range o.LogitBias {
		if int(id) >= m.Tokenizer.VocabSize() {
			return r, openai.Errorf(openai.CodeInvalidValue, "logit_bias",
				"logit_bias names token %d, but the model has %d tokens", id,
				m.Tokenizer.VocabSize())
		}
	}
	var fault *openai.Error
	r.Hints, fault = hints(x.r.Header, o)
	if tenant := x.visit.Tenant(); tenant != "" {
		r.Hints.Tenant = tenant // A key says whose it is; a header could claim anything.
	}
	return r, fault
}

// seed is the seed of one prompt: the request's, else the model's default, else one drawn.
func (s *Server) seed(m *Model, o *openai.Options) uint64 {
	switch {
	case o.Seed != nil:
		return uint64(*o.Seed)
	case m.Defaults.Seed != nil:
		return *m.Defaults.Seed
	}
	return s.options.Seed()
}

// Headers that bear on when a request's tokens come.
const (
	headerPriority = "X-Priority"
	headerDeadline = "X-Deadline-Ms"
	headerTenant   = "X-Tenant"
	headerClass    = "X-Class"
	headerTag      = "X-Policy-Tag"
	headerGroup    = "X-Policy-Group"
)

// maxTenant bounds a tenant's name in bytes.
const maxTenant = 128

// hints reads what policies are told of a request. A field of the body wins over its header.
func hints(h http.Header, o *openai.Options) (generation.Hints, *openai.Error) {
	hints := generation.Hints{Tenant: h.Get(headerTenant),
		PredictedOutput: uint32(value(o.PredictedOutput, 0))}
	if !printable(hints.Tenant) || len(hints.Tenant) > maxTenant {
		return hints, badHeader(headerTenant, hints.Tenant, "at most 128 printable characters")
	}
	if text := h.Get(headerPriority); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return hints, badHeader(headerPriority, text, "an integer of 32 bits")
		}
		hints.Priority = int32(n)
	}
	if o.Priority != nil {
		hints.Priority = int32(*o.Priority)
	}
	if text := h.Get(headerDeadline); text != "" {
		const most = math.MaxInt64 / int64(time.Millisecond)
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms < 1 || ms > most {
			return hints, badHeader(headerDeadline, text, "a number of milliseconds, at least 1")
		}
		hints.Deadline = time.Duration(ms) * time.Millisecond
	}
	switch text := h.Get(headerClass); text {
	case "":
	case "interactive":
		hints.Class = generation.ClassInteractive
	case "batch":
		hints.Class = generation.ClassBatch
	default:
		return hints, badHeader(headerClass, text, "interactive or batch")
	}
	if text := h.Get(headerTag); text != "" {
		tag, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return hints, badHeader(headerTag, text, "an unsigned integer of 64 bits")
		}
		hints.Tag = tag
	}
	if text := h.Get(headerGroup); text != "" {
		group, err := strconv.ParseUint(text, 10, 32)
		if err != nil || group == 0 {
			return hints, badHeader(headerGroup, text, "an integer of 32 bits, at least 1")
		}
		hints.Group = uint32(group)
	}
	return hints, nil
}

func badHeader(name, text, want string) *openai.Error {
	return openai.Errorf(openai.CodeInvalidValue, name, "the header %s is %.40q; it must be %s",
		name, text, want)
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
