package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// Generate implements generation.Source. It returns at once; refusals come with the first Next.
func (r *Router) Generate(
	reader context.Context, ask generation.Request,
) (generation.Stream, error) {
	ctx, cancel := context.WithCancel(reader)
	s := &stream{updates: make(chan result, 16), cancel: cancel}
	f := &forward{router: r, ask: ask, out: s, id: "router-" + randomHex(), accepted: time.Now()}
	go func() {
		select {
		case <-r.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer cancel()
		defer close(s.updates)
		if err := f.run(ctx); err != nil {
			s.send(reader, result{err: r.orClosing(err)})
		}
	}()
	return s, nil
}

// orClosing is the error of a request: what went wrong, or that the router is shutting down.
func (r *Router) orClosing(err error) error {
	select {
	case <-r.closing:
		return generation.Errorf(generation.CodeDraining, "the router is shutting down")
	default:
		return err
	}
}

func randomHex() string {
	var b [12]byte
	rand.Read(b[:]) // It never fails.
	return hex.EncodeToString(b[:])
}

// stream hands updates from the goroutine that drives the instances to the reader.
type stream struct {
	updates chan result
	cancel  context.CancelFunc
}

type result struct {
	update generation.Update
	err    error
}

// Next implements generation.Stream.
func (s *stream) Next(ctx context.Context) (generation.Update, error) {
	select {
	case r, more := <-s.updates:
		if !more {
			return generation.Update{}, context.Canceled
		}
		return r.update, r.err
	case <-ctx.Done():
		s.cancel()
		return generation.Update{}, ctx.Err()
	}
}

// Stop implements generation.Stream.
func (s *stream) Stop() { s.cancel() }

// send waits for the reader; a reader that is gone ends ctx.
func (s *stream) send(ctx context.Context, r result) {
	select {
	case s.updates <- r:
	case <-ctx.Done():
	}
}

// forward is one request on its way through the instances.
type forward struct {
	router *Router
	ask    generation.Request
	out    *stream
	id     string
	ticket placement.Ticket

	accepted time.Time
	begun    bool // a token was handed on
	report   generation.Report
}

// run tries instances until one has generated, the tries are used up, or a token is out.
func (f *forward) run(ctx context.Context) error {
	defer f.router.settle(func(*placement.Pool) {
		f.ticket.Release(placement.Prefill)
		f.ticket.Release(placement.Decode)
	})
	for try := 0; ; try++ {
		remote := len(f.ask.Prompt) > 1
		if err := f.router.place(&f.ticket, remote); err != nil {
			return generation.Errorf(generation.CodeNoDecode, "%v", err)
		}
		err := f.attempt(ctx)
		if err == nil || f.begun || try >= f.router.options.Retries || !f.elsewhere(err) {
			return wire(err)
		}
		f.router.options.Watch.Retried(reasonOf(err))
		f.router.options.Log.Warn("request is tried on another instance", "id", f.id,
			"instance", f.ticket.Instance(placement.Decode), "error", err)
		f.router.settle(func(*placement.Pool) { f.ticket.Exclude(placement.Decode) })
	}
}

// elsewhere reports whether another decode instance may do better: this one did not answer, or it
// is full or leaving.
func (f *forward) elsewhere(err error) bool {
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		switch fault.Code {
		case openai.CodeQueueFull, openai.CodeDraining, openai.CodeModelLoading:
			return true
		}
		return false
	}
	return unreachable(err)
}

func reasonOf(err error) string {
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		return string(fault.Code)
	}
	return "unreachable"
}

// attempt drives the calls of one request over the instances of the ticket, as long as the decode
// instance lives.
func (f *forward) attempt(ctx context.Context) error {
	decode := f.url(placement.Decode)
	watched, end := f.router.watched(ctx, decode, decodeSilences)
	err := f.drive(watched, decode)
	silent := end()
	if err != nil && silent {
		err = errSilent
	}
	if err != nil {
		f.lost(placement.Decode, err)
	}
	return err
}

// drive makes the calls of one attempt.
func (f *forward) drive(ctx context.Context, decode string) error {
	begin := 0
	if f.ticket.Instance(placement.Prefill) != "" {
		end, err := f.prefill(ctx, decode)
		if err != nil {
			f.giveBack(ctx, decode)
			return err
		}
		begin = end
		f.router.options.Watch.Placed("remote")
	} else {
		f.router.options.Watch.Placed("local")
	}
	f.router.settle(func(*placement.Pool) { f.ticket.Release(placement.Prefill) })
	call := f.call()
	call.Begin, call.Stream, call.ReturnTokenIDs = &begin, true, true
	call.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	call.ResponseFormat = f.ask.Form
	response, err := f.router.open(ctx, decode+openai.PathStartGenerate, call, f.headers())
	if err != nil {
		f.giveBack(ctx, decode)
		return err
	}
	defer response.Body.Close()
	return f.relay(ctx, response.Body)
}

// giveBack drops the reservation. Nobody waits for a silent instance: if it comes back, it hears of
// it; if not, the lease ends.
func (f *forward) giveBack(ctx context.Context, decode string) {
	if context.Cause(ctx) == errSilent {
		go f.release(decode)
		return
	}
	f.release(decode)
}

// prefill reserves on the decode instance and has the prefill instance fill the reservation. A
// prefill that is lost is no error: the decode instance says what becomes of it. It returns the end
// of the window.
func (f *forward) prefill(ctx context.Context, decode string) (int, error) {
	end := len(f.ask.Prompt) - 1
	call := f.call()
	call.End = &end
	reserved, err := f.reserve(ctx, decode, call)
	if err != nil {
		return 0, err
	}
	matched := reserved.PrefixMatchedLength
	f.report.Cached = matched
	if matched >= end {
		return end, nil
	}
	call = f.call()
	call.Begin, call.End, call.KVAddrInfo = &matched, &end, reserved.KVAppendMetadata
	var sent openai.RemoteSendResponse
	f.report.Queue = time.Since(f.accepted)
	begun := time.Now()
	err = f.router.postWatched(ctx, longCall{instance: f.url(placement.Prefill),
		path: openai.PathRemoteSend, body: call, to: &sent, header: f.headers()})
	waited := openai.FromMilliseconds(sent.Queue)
	f.report.Queue += waited
	f.report.Prefill = time.Since(begun) - waited
	f.report.Chunks = sent.Chunks
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		f.lost(placement.Prefill, err)
		f.router.options.Watch.Retried("prefill_" + reasonOf(err))
		f.router.options.Log.Warn("remote prefill failed; the decode instance decides", "id", f.id,
			"prefill", f.ticket.Instance(placement.Prefill),
			"decode", f.ticket.Instance(placement.Decode), "error", err)
	}
	return end, nil
}

// reserve makes the prep_recv call. A client that leaves does not cut it off: the instance might
// take the call up afterwards, and hold pages of which nobody knows. The reservation is released
// until the call has ended instead; whoever gets the error releases it once more.
func (f *forward) reserve(ctx context.Context, decode string, call *openai.Call,
) (reserved openai.PrepareReceiveResponse, err error) {
	const tries, pause = 5, time.Second
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = f.router.post(detached, decode+openai.PathPrepareReceive, call, &reserved,
			f.headers())
	}()
	select {
	case <-ended:
		return reserved, err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == errSilent {
		cancel()
		<-ended
		return reserved, errSilent
	}
	for range tries {
		f.release(decode)
		select {
		case <-ended:
			return reserved, ctx.Err()
		case <-time.After(pause):
		}
	}
	cancel()
	<-ended
	return reserved, ctx.Err()
}

// lost counts against an instance that did not answer.
func (f *forward) lost(role placement.Role, err error) {
	if !unreachable(err) {
		return
	}
	f.router.settle(func(p *placement.Pool) { p.Failed(role, f.ticket.Instance(role)) })
}

// release drops the reservation, whoever has gone meanwhile.
func (f *forward) release(decode string) {
	const most = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	err := f.router.post(ctx, decode+openai.PathRelease, openai.Release{User: f.id}, &struct{}{},
		nil)
	if err != nil {
		f.router.options.Log.Debug("release failed; the lease will end it", "id", f.id, "error",
			err)
	}
}

func (f *forward) url(role placement.Role) string {
	return f.router.url(role, f.ticket.Instance(role))
}

// relay hands on the events of the decode instance. The finish waits for the usage that follows it.
func (f *forward) relay(ctx context.Context, body io.Reader) error {
	events := openai.NewEventReader(body)
	var finish generation.Finish
	for {
		data, err := events.Next()
		if errors.Is(err, io.EOF) {
			f.out.send(ctx, result{update: generation.Update{Finish: finish, Report: f.report}})
			return nil
		}
		if err != nil {
			return err
		}
		var event struct {
			openai.CompletionResponse
			Error  json.RawMessage `json:"error"`
			Phases *openai.Phases  `json:"phases"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return err
		}
		if event.Error != nil {
			return openai.DecodeError(0, data)
		}
		if u := event.Usage.Usage; u != nil {
			f.report.Cached = u.PromptTokensDetails.CachedTokens
		}
		f.phases(event.Phases)
		for _, choice := range event.Choices {
			if len(choice.TokenIDs) > 0 {
				f.begun = true
				f.out.send(ctx, result{update: generation.Update{Tokens: choice.TokenIDs,
					Logprobs: ranked(choice.Logprobs), Report: f.report}})
			}
			if choice.FinishReason != nil {
				finish = generation.Finish(*choice.FinishReason)
			}
		}
	}
}

// phases completes the report with what the decode instance says: all of a prompt that it computed
// itself, else what came after the prefill.
func (f *forward) phases(p *openai.Phases) {
	if p == nil {
		return
	}
	f.report.Chunks += p.Chunks
	f.report.BytesSent, f.report.Policy = p.BytesSent, p.Policy
	f.report.Transfer = openai.FromMilliseconds(p.Transfer)
	if f.report.Prefill == 0 {
		f.report.Queue = openai.FromMilliseconds(p.Queue)
		f.report.Prefill = openai.FromMilliseconds(p.Prefill)
	}
}

// wire words an error for the API.
func wire(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		return &generation.Error{Code: generation.Code(fault.Code), Message: fault.Message,
			Param: fault.Param}
	}
	if g, ok := errors.AsType[*generation.Error](err); ok {
		return g
	}
	return generation.Errorf(generation.CodeTransferFailed, "an instance did not answer: %v", err)
}
