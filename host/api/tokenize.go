package api

import (
	"strconv"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// tokenRoutes are those about tokens, under both of the names they have elsewhere.
func (s *Server) tokenRoutes() []route {
	return []route{
		{"POST", openai.PathTokenize, s.tokenize},
		{"POST", "/v1" + openai.PathTokenize, s.tokenize},
		{"POST", openai.PathDetokenize, s.detokenize},
		{"POST", "/v1" + openai.PathDetokenize, s.detokenize},
	}
}

// tokenize serves POST /tokenize: the very tokens that a completion or a chat would begin with.
func (s *Server) tokenize(x *exchange) {
	body, fault := s.body(x)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	t, fault := openai.DecodeTokenize(body, s.limits())
	if fault != nil {
		s.fail(x, fault)
		return
	}
	m, fault := s.serving(x, t.Model)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	text := t.Prompt
	if t.Messages != nil {
		if text, fault = m.rendered(&t.Chat, t.AddGenerationPrompt); fault != nil {
			s.fail(x, fault)
			return
		}
	}
	ids := m.Tokenizer.Encode(text,
		tokenizer.EncodeOptions{AddSpecial: t.AddSpecialTokens, ParseSpecial: true})
	answer := openai.TokenizeResponse{Count: len(ids), MaxModelLen: m.Context, Tokens: ids}
	if t.ReturnTokenStrings {
		answer.TokenStrings = make([]string, len(ids))
		for i, id := range ids {
			answer.TokenStrings[i] = m.Tokenizer.Token(id)
		}
	}
	s.reply(x, answer)
}

// detokenize serves POST /detokenize.
func (s *Server) detokenize(x *exchange) {
	body, fault := s.body(x)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	d, fault := openai.DecodeDetokenize(body)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	m, fault := s.serving(x, d.Model)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	for i, id := range d.Tokens {
		if m.Tokenizer.TokenBytes(id) == nil {
			s.fail(x, openai.Errorf(openai.CodeInvalidValue, "tokens["+strconv.Itoa(i)+"]",
				"tokens[%d] is %d, which is not a token of this model", i, id))
			return
		}
	}
	s.reply(x, openai.DetokenizeResponse{Prompt: m.Tokenizer.Decode(d.Tokens, false)})
}
