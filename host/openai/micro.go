package openai

import "encoding/json"

// Paths of the micro-serving calls. Each is a POST whose body is a completion request and a window
// of the prompt; user ties the calls of one request together.
const (
	PathPrepareReceive = "/microserving/prep_recv"
	PathRemoteSend     = "/microserving/remote_send"
	PathStartGenerate  = "/microserving/start_generate"
)

// emittedTokens names the field that says how many of the prompt's last tokens are output of the
// request already: a router whose decode instance was lost in the middle of a stream has another
// one go on behind them.
const emittedTokens = "emitted_tokens"

// PrepareReceive asks a decode instance to reserve pages for the prompt up to End, which counts
// from the prompt's end when negative.
type PrepareReceive struct {
	Completion
	End int
}

// RemoteSend asks a prefill instance to compute the prompt up to End and to send [Begin, End) to
// the receiver that KVAddrInfo describes. RecvRank is accepted and means nothing here.
type RemoteSend struct {
	Completion
	Begin, End int
	KVAddrInfo string
	RecvRank   int
}

// StartGenerate asks a decode instance to compute the prompt from Begin on and to generate.
type StartGenerate struct {
	Completion
	Begin int
}

// PrepareReceiveResponse answers a PrepareReceive. KVAppendMetadata is opaque.
type PrepareReceiveResponse struct {
	KVAppendMetadata    string `json:"kv_append_metadata"`
	PrefixMatchedLength int    `json:"prefix_matched_length"`
}

// RemoteSendResponse answers a RemoteSend, after the receiver has it all. Status is "ok".
type RemoteSendResponse struct {
	Status     string `json:"status"`
	SentTokens int    `json:"sent_tokens"`
	// For who asks by HeaderReport: the chunks computed, and milliseconds in the queue before.
	Chunks int     `json:"prefill_chunks,omitempty"`
	Queue  float64 `json:"queue_ms,omitempty"`
	// Prefill is from there until the last chunk was computed.
	Prefill float64 `json:"prefill_ms,omitempty"`
}

// DecodePrepareReceive reads the body of a prep_recv call.
func DecodePrepareReceive(body []byte, l Limits) (*PrepareReceive, *Error) {
	p, hasEnd := &PrepareReceive{}, false
	err := p.read(body, l, func(m member) (bool, *Error) {
		switch m.name {
		case "end":
			hasEnd = true
			return true, m.offset(&p.End)
		case emittedTokens:
			return true, m.offset(&p.Emitted)
		}
		return false, nil
	})
	if err == nil {
		err = p.window(hasEnd, "end", true)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// DecodeRemoteSend reads the body of a remote_send call. A missing begin is 0.
func DecodeRemoteSend(body []byte, l Limits) (*RemoteSend, *Error) {
	r, hasEnd := &RemoteSend{}, false
	err := r.read(body, l, func(m member) (bool, *Error) {
		switch m.name {
		case "begin":
			return true, m.offset(&r.Begin)
		case "end":
			hasEnd = true
			return true, m.offset(&r.End)
		case "kv_addr_info":
			return true, m.text(&r.KVAddrInfo, MaxMetadata)
		case "recv_rank":
			return true, m.offset(&r.RecvRank)
		case emittedTokens:
			return true, m.offset(&r.Emitted)
		case "n": // Nothing is generated.
			_, err := m.integer(1, 1<<31)
			return true, err
		}
		return false, nil
	})
	switch {
	case err != nil:
	case r.KVAddrInfo == "":
		err = missing("kv_addr_info")
	default:
		err = r.window(hasEnd, "end", true)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeStartGenerate reads the body of a start_generate call. A missing begin is 0: a request that
// nothing was prepared for.
func DecodeStartGenerate(body []byte, l Limits) (*StartGenerate, *Error) {
	s := &StartGenerate{}
	l.internal = true
	err := s.read(body, l, func(m member) (bool, *Error) {
		switch m.name {
		case "begin":
			return true, m.offset(&s.Begin)
		case emittedTokens:
			return true, m.offset(&s.Emitted)
		}
		return false, nil
	})
	if err == nil {
		err = s.window(true, "begin", s.Begin != 0)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// window checks what the three calls share: one prompt, the field they cannot do without, and user.
func (c *Completion) window(has bool, field string, needsUser bool) *Error {
	switch {
	case len(c.Prompts) != 1:
		return Errorf(CodeInvalidValue, "prompt",
			"prompt holds %d prompts; a micro-serving call has one", len(c.Prompts))
	case !has:
		return missing(field)
	case needsUser && c.User == "":
		return missing("user")
	}
	return nil
}

// Call is the body of any micro-serving call, for those who make one. Nil pointers are left out.
type Call struct {
	Model       string     `json:"model,omitempty"`
	Prompt      CallPrompt `json:"prompt"`
	User        string     `json:"user,omitempty"`
	Temperature *float64   `json:"temperature,omitempty"`
	TopP        *float64   `json:"top_p,omitempty"`
	MinP        *float64   `json:"min_p,omitempty"`
	TopK        *int       `json:"top_k,omitempty"`
	Seed        *int64     `json:"seed,omitempty"`
	MaxTokens   *int       `json:"max_tokens,omitempty"`
	MinTokens   int        `json:"min_tokens,omitempty"`
	Logprobs    *int       `json:"logprobs,omitempty"`
	CallPenalties
	Priority        int32           `json:"priority,omitempty"`
	PredictedOutput uint32          `json:"predicted_output,omitempty"`
	ResponseFormat  json.RawMessage `json:"response_format,omitempty"`
	Stop            []string        `json:"stop,omitempty"`
	Stream          bool            `json:"stream"`
	StreamOptions   *StreamOptions  `json:"stream_options,omitempty"`
	ReturnTokenIDs  bool            `json:"return_token_ids,omitempty"`
	DebugConfig     DebugConfig     `json:"debug_config"`
	Emitted         int             `json:"emitted_tokens,omitempty"`
	Begin           *int            `json:"begin,omitempty"`
	End             *int            `json:"end,omitempty"`
	KVAddrInfo      string          `json:"kv_addr_info,omitempty"`
	RecvRank        *int            `json:"recv_rank,omitempty"`
}

// CallPrompt is a prompt of token ids, with vectors in place of some of them.
type CallPrompt struct {
	Tokens  []int32
	Vectors []CallVectors
}

// CallVectors are the vectors at positions [Start, Start+Rows) of a prompt: a safetensors file.
type CallVectors struct {
	Start, Rows int
	File        []byte
}

// MarshalJSON implements json.Marshaler: an array of ids or, with vectors, of data items.
func (p CallPrompt) MarshalJSON() ([]byte, error) {
	if len(p.Vectors) == 0 {
		return json.Marshal(p.Tokens)
	}
	var items []any
	at := 0
	tokens := func(to int) {
		if at < to {
			items = append(items, p.Tokens[at:to])
		}
	}
	for _, v := range p.Vectors {
		tokens(v.Start)
		items = append(items, map[string][]byte{"prompt_embeds": v.File}) // As base64.
		at = v.Start + v.Rows
	}
	tokens(len(p.Tokens))
	return json.Marshal(items)
}

// UnmarshalJSON implements json.Unmarshaler for those who play an instance: it reads ids alone.
func (p *CallPrompt) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &p.Tokens)
}

// CallPenalties are the fields of Penalties in a Call.
type CallPenalties struct {
	PresencePenalty   float64            `json:"presence_penalty,omitempty"`
	FrequencyPenalty  float64            `json:"frequency_penalty,omitempty"`
	RepetitionPenalty float64            `json:"repetition_penalty,omitempty"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"`
}

// StreamOptions is the field of that name.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// DebugConfig is the field of that name.
type DebugConfig struct {
	IgnoreEOS          bool `json:"ignore_eos,omitempty"`
	PinnedSystemPrompt bool `json:"pinned_system_prompt,omitempty"`
}
