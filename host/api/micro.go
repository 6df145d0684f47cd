package api

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
)

func (s *Server) instance(x *exchange) { s.reply(x, s.options.Identity()) }

// files serves the tokenizer's files; their names are fixed, so no path leads elsewhere.
func (s *Server) files(x *exchange) {
	name := strings.TrimPrefix(x.r.URL.Path, openai.PathFiles)
	m, fault := s.options.Model()
	switch {
	case fault != nil:
		s.fail(x, fault)
		return
	case !slices.Contains(openai.TokenizerFiles(), name):
		s.fail(x, openai.Errorf(openai.CodeUnknownURL, "", "there is no file %.100q", name))
		return
	}
	data, err := fs.ReadFile(m.Files, name)
	if errors.Is(err, fs.ErrNotExist) {
		s.fail(x, openai.Errorf(openai.CodeUnknownURL, "", "the model has no %s", name))
		return
	}
	if err != nil {
		s.fail(x, openai.Errorf(openai.CodeInternal, "", "read %s: %v", name, err))
		return
	}
	x.w.Header().Set("Content-Type", "application/octet-stream")
	x.w.WriteHeader(http.StatusOK)
	_, _ = x.w.Write(data) // A router that is gone notices nothing.
}

// micro reads a micro-serving call and its one prompt.
func (s *Server) micro(x *exchange, decode func([]byte, openai.Limits) (*openai.Completion,
	*openai.Error),
) (generation.Request, bool) {
	body, fault := s.body(x)
	var c *openai.Completion
	if fault == nil {
		c, fault = decode(body, s.limits())
	}
	var m *Model
	if fault == nil {
		m, fault = s.serving(x, c.Model)
	}
	var ask generation.Request
	if fault == nil {
		ask, fault = s.ask(x, m, &c.Options)
	}
	if fault == nil {
		var p prompt
		p, fault = m.tokens(c.Prompts[0])
		ask.Prompt, ask.Embeds = p.ids, p.embeds
	}
	if fault != nil {
		s.fail(x, fault)
		return ask, false
	}
	ask.Sampling.Seed = s.seed(m, &c.Options)
	return ask, true
}

// prepareReceive serves prep_recv.
func (s *Server) prepareReceive(x *exchange) {
	var call *openai.PrepareReceive
	ask, ok := s.micro(x, func(b []byte, l openai.Limits) (*openai.Completion, *openai.Error) {
		var fault *openai.Error
		if call, fault = openai.DecodePrepareReceive(b, l); fault != nil {
			return nil, fault
		}
		return &call.Completion, nil
	})
	if !ok {
		return
	}
	res, err := s.options.Handoff.PrepareReceive(x.r.Context(), ask, call.End)
	if err != nil {
		s.fail(x, wireError(err))
		return
	}
	s.reply(x, openai.PrepareReceiveResponse{
		KVAppendMetadata: res.Metadata, PrefixMatchedLength: res.Matched,
	})
}

// remoteSend serves remote_send: it answers when the receiver has it all.
func (s *Server) remoteSend(x *exchange) {
	var call *openai.RemoteSend
	ask, ok := s.micro(x, func(b []byte, l openai.Limits) (*openai.Completion, *openai.Error) {
		var fault *openai.Error
		if call, fault = openai.DecodeRemoteSend(b, l); fault != nil {
			return nil, fault
		}
		return &call.Completion, nil
	})
	if !ok {
		return
	}
	sent, err := s.options.Handoff.RemoteSend(x.r.Context(), ask, generation.Send{
		Begin: call.Begin, End: call.End, Metadata: call.KVAddrInfo,
	})
	if err != nil {
		fault := wireError(err)
		fault.Reason = string(fault.Code)
		s.fail(x, fault)
		return
	}
	answer := openai.RemoteSendResponse{Status: "ok", SentTokens: sent.Tokens}
	if x.r.Header.Get(openai.HeaderReport) != "" {
		answer.Chunks, answer.Queue = sent.Chunks, openai.Milliseconds(sent.Queue)
		answer.Prefill = openai.Milliseconds(sent.Prefill)
	}
	s.reply(x, answer)
}

// startGenerate serves start_generate, in the form of a completion.
func (s *Server) startGenerate(x *exchange) {
	body, fault := s.body(x)
	if fault != nil {
		s.fail(x, fault)
		return
	}
	call, fault := openai.DecodeStartGenerate(body, s.limits())
	if fault != nil {
		s.fail(x, fault)
		return
	}
	var begun atomic.Bool // The first answer uses the reservation; the others find its prompt.
	s.complete(x, &call.Completion, false,
		func(ctx context.Context, ask generation.Request) (generation.Stream, error) {
			if begun.Swap(true) {
				return s.options.Source.Generate(ctx, ask)
			}
			return s.options.Handoff.StartGenerate(ctx, ask, call.Begin)
		})
}

// ended reads which reservation a call ends.
func (s *Server) ended(x *exchange) (user string, ok bool) {
	body, fault := s.body(x)
	if fault != nil {
		s.fail(x, fault)
		return "", false
	}
	var call openai.Release
	if err := json.Unmarshal(body, &call); err != nil || call.User == "" {
		s.fail(x, openai.Errorf(openai.CodeMissingField, "user",
			"%s needs {\"user\": the id of the request}", x.r.URL.Path))
		return "", false
	}
	return call.User, true
}

// commit keeps what was delivered for a reservation that nobody will start.
func (s *Server) commit(x *exchange) {
	user, ok := s.ended(x)
	if !ok {
		return
	}
	tokens, err := s.options.Handoff.Commit(x.r.Context(), user)
	if err != nil {
		s.fail(x, wireError(err))
		return
	}
	s.reply(x, openai.CommitResponse{Status: "ok", CommittedTokens: tokens})
}

// release drops a reservation; an unknown one is gone already.
func (s *Server) release(x *exchange) {
	user, ok := s.ended(x)
	if !ok {
		return
	}
	if err := s.options.Handoff.Release(x.r.Context(), user); err != nil {
		s.fail(x, wireError(err))
		return
	}
	s.reply(x, map[string]string{"status": "ok"})
}
