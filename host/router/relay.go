package router

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// relay hands on the events of the decode instance. The finish waits for the usage that follows it.
// A stream that stops before its end is an error, whatever came before: the next attempt goes on
// behind the tokens that were handed on.
func (f *forward) relay(body io.Reader) error {
	events := openai.NewEventReader(body)
	var finish generation.Finish
	first := len(f.emitted) == 0
	for {
		data, err := events.Next()
		if errors.Is(err, io.EOF) {
			last := generation.Update{Finish: finish, Report: f.report}
			f.out.send(f.reader, result{update: last})
			return nil
		}
		if err != nil {
			return err
		}
		var event event
		if err := json.Unmarshal(data, &event); err != nil {
			return err
		}
		if event.Error != nil {
			return openai.DecodeError(0, data)
		}
		if u := event.Usage.Usage; u != nil && first {
			f.report.Cached = u.PromptTokensDetails.CachedTokens
		}
		f.phases(event.Phases, first)
		for _, choice := range event.Choices {
			f.handOn(&choice)
			if choice.FinishReason != nil {
				finish = generation.Finish(*choice.FinishReason)
			}
		}
	}
}

// event is what a decode instance streams.
type event struct {
	openai.CompletionResponse
	Error  json.RawMessage `json:"error"`
	Phases *openai.Phases  `json:"phases"`
}

// handOn gives the tokens of a choice to the reader, and remembers them. Only the reader's own end
// may keep them from it: what is remembered is not generated again.
func (f *forward) handOn(choice *openai.CompletionChoice) {
	if len(choice.TokenIDs) == 0 {
		return
	}
	if len(f.emitted) == 0 {
		f.settle(func() { f.ticket.Compute(placement.Decode, 0) })
	}
	for _, token := range choice.TokenIDs {
		if f.ask.Constraint != nil && f.ask.Constraint.Accept(token) {
			f.formed = true
		}
	}
	f.router.advanced()
	f.emitted = append(f.emitted, choice.TokenIDs...)
	f.out.send(f.reader, result{update: generation.Update{Tokens: choice.TokenIDs,
		Logprobs: ranked(choice.Logprobs), Report: f.report}})
}

// phases completes the report with what the decode instance says at the end. One that took over in
// the middle says nothing about the prompt.
func (f *forward) phases(p *openai.Phases, first bool) {
	if p == nil {
		return
	}
	f.report.Policy = p.Policy
	if !first {
		return
	}
	f.report.Chunks += p.Chunks
	f.report.BytesSent = p.BytesSent
	f.report.Transfer = openai.FromMilliseconds(p.Transfer)
}
