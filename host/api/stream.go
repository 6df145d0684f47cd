package api

import (
	"context"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// streaming is one answer that is written as it comes.
type streaming struct {
	header  header
	answers []*answer
	cancel  context.CancelFunc
	events  *openai.EventWriter
	opened  []bool
	soFar   openai.Usage   // of all answers, in continuous_usage_stats
	used    usage          // of the answers that have ended
	report  *openai.Report // of the last answer that ended; nil when nobody asked for it
}

// stream writes the answers as events. A write that fails cancels the generation.
func (s *Server) stream(ctx context.Context, x *exchange, t *task, st streaming) {
	st.events = openai.NewEventWriter(x.w, s.options.WriteTimeout)
	st.opened = make([]bool, len(st.answers))
	if x.r.Header.Get(openai.HeaderReport) != "" {
		st.report = &openai.Report{Object: openai.ObjectReport, Choices: []struct{}{}}
	}
	pieces := merge(ctx, st.answers)
	quiet := newQuiet(s.options.KeepAlive)
	defer quiet.stop()
	for {
		select {
		case p, more := <-pieces:
			if !more {
				s.closeStream(ctx, x, t, &st)
				return
			}
			s.note(t, p)
			s.timed(x, p)
			if p.err != nil {
				s.done(x, t, p, p.err)
				s.failStream(x, &st, p.err)
				return
			}
			if st.write(t, p) != nil {
				st.cancel()
				x.w.code = openai.Lookup(openai.CodeClientDisconnected).Status
				return
			}
			if p.last() {
				s.done(x, t, p, nil)
			}
		case <-quiet.after():
			if st.events.KeepAlive() != nil {
				st.cancel()
				return
			}
		}
		quiet.reset()
	}
}

// failStream ends a stream with an error; pieces that are still to come find ctx ended.
func (s *Server) failStream(x *exchange, st *streaming, fault *openai.Error) {
	st.cancel()
	s.options.Watch.Rejected(string(fault.Code))
	if fault = x.stillThere(fault); fault.Code == openai.CodeClientDisconnected {
		x.w.code = fault.Status()
		return
	}
	_ = st.events.Fail(fault) // A client that is gone hears nothing.
}

// closeStream ends a stream whose answers have all ended.
func (s *Server) closeStream(ctx context.Context, x *exchange, t *task, st *streaming) {
	if err := ctx.Err(); err != nil {
		s.failStream(x, st, wireError(err))
		return
	}
	if t.options.IncludeUsage {
		total := st.used.total()
		if st.events.Send(t.shape.summary(st.header, openai.ShowUsage(&total))) != nil {
			return
		}
	}
	if st.report != nil && st.events.Send(st.report) != nil {
		return
	}
	_ = st.events.Done() // A client that is gone hears nothing.
}

// write sends one piece: the opening before an answer's first, its text, and its end by itself.
func (st *streaming) write(t *task, p piece) error {
	if !st.opened[p.answer.index] {
		st.opened[p.answer.index] = true
		if p.answer.first == nil {
			st.soFar.PromptTokens += len(p.answer.ask.Prompt)
			st.soFar.PromptTokensDetails.CachedTokens += p.report.Cached
		}
		if opening := t.shape.opening(st.header, p.answer.index, st.shown(t)); opening != nil {
			if err := st.events.Send(opening); err != nil {
				return err
			}
		}
	}
	st.soFar.CompletionTokens += len(p.tokens)
	if p.last() {
		st.used.add(p)
		if st.report != nil {
			st.report.Phases = reportOf(p)
		}
	}
	shown := st.shown(t)
	if p.text != "" || len(p.logprobs)+len(p.calls) > 0 ||
		t.options.ReturnTokenIDs && len(p.tokens) > 0 {
		// Clients put calls together delta by delta, so an event has one.
		part := p
		part.finish, part.calls = "", p.calls[:min(1, len(p.calls))]
		for i := range max(1, len(p.calls)) {
			if i > 0 {
				part = piece{answer: p.answer, calls: p.calls[i : i+1]}
			}
			if err := st.events.Send(t.shape.chunk(st.header, part, shown)); err != nil {
				return err
			}
		}
	}
	if p.finish == "" {
		return nil
	}
	p.text, p.tokens, p.logprobs, p.calls = "", nil, nil, nil
	return st.events.Send(t.shape.chunk(st.header, p, shown))
}

// shown is the usage in a chunk: none, null, or the numbers so far.
func (st *streaming) shown(t *task) openai.UsageField {
	if !t.options.IncludeUsage {
		return openai.UsageField{}
	}
	if !t.options.ContinuousUsage {
		return openai.ShowUsage(nil)
	}
	u := st.soFar
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return openai.ShowUsage(&u)
}

// quiet measures the silence of a stream; with a limit of 0 it never ends.
type quiet struct {
	limit time.Duration
	timer *time.Timer
}

func newQuiet(limit time.Duration) *quiet {
	q := &quiet{limit: limit}
	if limit > 0 {
		q.timer = time.NewTimer(limit)
	}
	return q
}

func (q *quiet) after() <-chan time.Time {
	if q.timer == nil {
		return nil
	}
	return q.timer.C
}

func (q *quiet) reset() {
	if q.timer != nil {
		q.timer.Reset(q.limit)
	}
}

func (q *quiet) stop() {
	if q.timer != nil {
		q.timer.Stop()
	}
}
