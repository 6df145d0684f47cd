package api

import (
	"context"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// answer turns the tokens of one prompt's generation into text, up to a stop string.
type answer struct {
	index  int
	stream generation.Stream
	text   *tokenizer.Stream
	stops  stopper
	prompt int // tokens
	output int // tokens so far
	first  time.Duration
	begun  time.Time
}

// piece is what an answer adds. Finish is set in the last one, Err instead when it failed.
type piece struct {
	answer *answer
	text   string
	tokens []int32
	finish generation.Finish
	report generation.Report
	err    *openai.Error
}

func (p *piece) last() bool { return p.finish != "" || p.err != nil }

// primer is how many prompt tokens a continuation's text depends on: a token's leading space is
// dropped only at the beginning of a text.
const primer = 8

// newAnswer begins the text of a continuation; of a chat's answer with no context.
func newAnswer(m *Model, index int, stream generation.Stream, context []int32) *answer {
	a := &answer{index: index, stream: stream, text: m.Tokenizer.NewStream(true), begun: time.Now()}
	for _, id := range context[max(0, len(context)-primer):] {
		a.text.Push(id)
	}
	return a
}

// next waits for more.
func (a *answer) next(ctx context.Context) piece {
	update, err := a.stream.Next(ctx)
	if err != nil {
		return piece{answer: a, err: wireError(err)}
	}
	p := piece{answer: a, finish: update.Finish, report: update.Report}
	for _, id := range update.Tokens {
		if a.output == 0 {
			a.first = time.Since(a.begun)
		}
		a.output++
		p.tokens = append(p.tokens, id)
		shown, found := a.stops.push(a.text.Push(id))
		p.text += shown
		if found {
			a.stream.Stop()
			p.finish = generation.FinishStop
			return p
		}
	}
	if p.finish != "" {
		shown, found := a.stops.push(a.text.Flush())
		p.text += shown
		if found {
			p.finish = generation.FinishStop
		} else {
			p.text += a.stops.flush()
		}
	}
	return p
}

// merge runs answers side by side and sends their pieces in the order they come. It closes the
// channel when all have ended or ctx has.
func merge(ctx context.Context, answers []*answer) <-chan piece {
	pieces := make(chan piece)
	left := make(chan struct{}, len(answers))
	for _, a := range answers {
		go func() {
			defer func() { left <- struct{}{} }()
			for {
				p := a.next(ctx)
				select {
				case pieces <- p:
				case <-ctx.Done():
					return
				}
				if p.last() {
					return
				}
			}
		}()
	}
	go func() {
		for range answers {
			<-left
		}
		close(pieces)
	}()
	return pieces
}
