package api

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// answer turns the tokens of one generation into text, up to a stop string.
type answer struct {
	index  int
	ask    generation.Request
	source func(context.Context, generation.Request) (generation.Stream, error)
	stream generation.Stream // nil before begin
	// first is the answer to the same prompt that computes it; nil when this is the one.
	first *answer
	ready chan struct{} // closed at the first token, or when there will be none

	text   *tokenizer.Stream
	words  *tokenizer.Tokenizer
	stops  stopper
	calls  *callParser // nil when no tools were offered
	echo   string      // shown before the first piece
	offset int         // characters of the whole text so far, by tokens
	output int         // tokens so far
	ttft   time.Duration
	timing openai.Timing // of the time to the first token
	front  bool          // Its client is an application, not a router.
	// arrived is when the request came, begun when the source was asked; last is its latest token.
	arrived, begun, last time.Time
	said                 strings.Builder // what was given out, kept for the log alone
}

// piece is what an answer adds. Finish is set in the last one, Err instead when it failed.
type piece struct {
	answer   *answer
	text     string
	tokens   []int32
	logprobs []tokenLogprobs
	calls    []openai.CallDelta
	finish   generation.Finish
	report   generation.Report
	first    bool          // its tokens are the answer's first
	gap      time.Duration // since the tokens before
	err      *openai.Error
}

func (p *piece) last() bool { return p.finish != "" || p.err != nil }

// primer is how many prompt tokens a continuation's text depends on: a token's leading space is
// dropped only at the beginning of a text.
const primer = 8

// newAnswer prepares the text of a continuation; of a chat's answer with no context.
func newAnswer(t *task, index int, ask generation.Request) *answer {
	a := &answer{index: index, ask: ask, source: t.begin, words: t.model.Tokenizer,
		text: t.model.Tokenizer.NewStream(true), begun: time.Now(), ready: make(chan struct{}),
		front: t.front, arrived: t.arrived}
	a.stops.stops = t.options.Stop
	if t.style != nil {
		a.calls = newCallParser(*t.style, t.forced)
		a.calls.one = t.one
	}
	if _, continues := t.shape.(completionShape); continues {
		for _, id := range ask.Prompt[max(0, len(ask.Prompt)-primer):] {
			a.text.Push(id)
		}
	}
	return a
}

// begin asks the source.
func (a *answer) begin(ctx context.Context) error {
	a.begun = time.Now()
	stream, err := a.source(ctx, a.ask)
	a.stream = stream
	return err
}

// follow begins the answer once the prompt has been computed for the first one.
func (a *answer) follow(ctx context.Context) *openai.Error {
	if a.stream != nil {
		return nil
	}
	select {
	case <-a.first.ready:
		a.arrived = time.Now() // It could not have come earlier.
		return wireError(a.begin(ctx))
	case <-ctx.Done():
		return wireError(ctx.Err())
	}
}

// next waits for more.
func (a *answer) next(ctx context.Context) piece {
	update, err := a.stream.Next(ctx)
	if a.output == 0 {
		a.ttft = time.Since(a.arrived)
		a.offset = utf8.RuneCountInString(a.echo)
	}
	if err != nil {
		return piece{answer: a, err: wireError(err)}
	}
	p := piece{answer: a, text: a.echo, finish: update.Finish, report: update.Report}
	a.echo = ""
	a.clock(&p, len(update.Tokens))
	for i, id := range update.Tokens {
		a.output++
		p.tokens = append(p.tokens, id)
		if i < len(update.Logprobs) {
			p.logprobs = append(p.logprobs, a.describe(update.Logprobs[i]))
		}
		if a.push(&p, a.text.Push(id)+a.marker(id)) {
			a.stream.Stop()
			p.finish = generation.FinishStop
			return a.parsed(p)
		}
	}
	if p.finish != "" {
		if a.push(&p, a.text.Flush()) {
			p.finish = generation.FinishStop
		} else {
			p.text += a.stops.flush()
		}
	}
	return a.parsed(p)
}

// clock notes when tokens came.
func (a *answer) clock(p *piece, tokens int) {
	if tokens == 0 {
		return
	}
	now := time.Now()
	if p.first = a.output == 0; p.first {
		a.timing = a.split(p.report)
	} else {
		p.gap = now.Sub(a.last)
	}
	a.last = now
}

// marker is the text of a special token that begins or ends tool calls.
func (a *answer) marker(id int32) string {
	if a.calls == nil || !a.words.IsSpecial(id) {
		return ""
	}
	switch text := a.words.Token(id); text {
	case "":
	case a.calls.style.open, a.calls.style.close, pythonTag:
		return text
	}
	return ""
}

// finishCalls is the finish reason of an answer that calls tools.
const finishCalls generation.Finish = "tool_calls"

// parsed takes the tool calls out of a piece's text.
func (a *answer) parsed(p piece) piece {
	if a.calls == nil {
		return p
	}
	found := a.calls.push(p.text)
	if a.calls.at == ended && p.finish == "" {
		a.stream.Stop()
		p.finish = generation.FinishStop
	}
	if p.finish != "" {
		rest := a.calls.flush()
		found.content += rest.content
		found.calls = append(found.calls, rest.calls...)
		if p.finish == generation.FinishStop && a.calls.calls > 0 {
			p.finish = finishCalls
		}
	}
	p.text, p.calls = found.content, found.calls
	return p
}

// push adds text to the piece and reports whether a stop string was found. The first min_tokens
// tokens cannot be part of one.
func (a *answer) push(p *piece, text string) (found bool) {
	if a.output <= a.ask.MinTokens {
		p.text += text
		return false
	}
	shown, found := a.stops.push(text)
	p.text += shown
	return found
}

// merge runs answers side by side and sends their pieces in the order they come. It closes the
// channel when all have ended or ctx has.
func merge(ctx context.Context, answers []*answer) <-chan piece {
	pieces := make(chan piece)
	left := make(chan struct{}, len(answers))
	for _, a := range answers {
		go func() {
			defer func() { left <- struct{}{} }()
			fault := a.follow(ctx)
			for waiting := true; ; waiting = false {
				p := piece{answer: a, err: fault}
				if fault == nil {
					p = a.next(ctx)
				}
				if waiting {
					close(a.ready)
				}
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
