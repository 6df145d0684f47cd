package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/tokenizer"
	"github.com/kvrelay/engine/host/transfer"
	"github.com/kvrelay/engine/plugins"
)

// pair is a prefill and a decode engine in this process, with a real socket between them.
type pair struct {
	model           *loaded
	prefill, decode *running
	observers       [2]*observer
	mux             *transfer.Mux
}

// openPair loads the model once and starts both engines on it.
func openPair(ctx context.Context, cfg *config.Config, show *loading) (*pair, error) {
	log := show.log
	m, err := loadModel(cfg, show)
	if err != nil {
		return nil, err
	}
	p := &pair{model: m}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	shared, drafts, err := m.share()
	if err != nil {
		return nil, fmt.Errorf("share the model: %w", err)
	}
	request := fullRequest(requests(cfg, m.about(), m.api.Context))
	s := setup{cfg: cfg, device: m.device, context: m.api.Context, hidden: m.api.Hidden,
		address: listener.Addr().String(), log: log, pages: request + 2}
	for i, role := range []config.Role{config.RolePrefill, config.RoleDecode} {
		one := s
		one.role, one.model, one.drafts = role, m.model, m.drafts
		if role == config.RoleDecode {
			one.model, one.drafts = shared, drafts
		}
		p.observers[i] = &observer{log: log}
		if one.policies, err = openPolicies(ctx, cfg, plugins.Options{},
			p.observers[i]); err != nil {
			return nil, err
		}
		started, err := one.start(ctx)
		if err != nil {
			return nil, err
		}
		if role == config.RolePrefill {
			p.prefill = started
		} else {
			p.decode = started
		}
	}
	p.mux = transfer.NewMux(listener, p.decode.receiver)
	return p, nil
}

func (p *pair) close(ctx context.Context, log *slog.Logger) {
	p.prefill.close()
	p.decode.close()
	_ = p.mux.Close() // Nobody listens any more.
	p.model.close(ctx, log)
}

// runPrompt continues one prompt through prefill, transfer and decode.
func runPrompt(ctx context.Context, o runOptions, s streams) error {
	cfg, notes, err := loadConfig(o.file)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprint(s.err, note.String())
	}
	if o.model.Set {
		cfg.Model.Path = o.model.Value
	}
	if o.backend != "" {
		cfg.Backend.Kind = o.backend
	}
	chats := !o.prompt.Set && o.tokenIDs == nil && isTerminal(s.in)
	if chats && o.json {
		return usageError("--json needs a prompt; see `engine run --help`")
	}
	if !chats {
		if err := o.readPrompt(untilStopped(ctx, s.in)); err != nil {
			return err
		}
	}
	log := newLogger(cfg, s.err, slog.LevelWarn)
	p, err := openPair(ctx, cfg, newLoading(ctx, s.err, log))
	if err != nil {
		return err
	}
	defer p.close(ctx, log)
	p.opening(s.err, cfg)
	if chats {
		return runChat(ctx, o, s, p)
	}
	ask, err := o.asked(p, s.err)
	if err != nil {
		return err
	}
	say := newSayer(o, s, p, ask)
	say.opening()
	r, err := p.generate(ctx, ask, say.text)
	if err != nil {
		return err
	}
	return say.closing(r)
}

// readPrompt takes stdin where no prompt was given.
func (o *runOptions) readPrompt(in io.Reader) error {
	if o.prompt.Set || o.tokenIDs != nil {
		return nil
	}
	const most = 64 << 20
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return fmt.Errorf("read the prompt from stdin: %w", err)
	}
	if len(data) > most {
		return fmt.Errorf("the prompt on stdin is longer than %s", size(most))
	}
	o.prompt = config.To(strings.TrimSuffix(string(data), "\n"))
	return nil
}

// asked is what the engines are asked, after a line that says what became of the prompt where the
// model has a chat template.
func (o *runOptions) asked(p *pair, out io.Writer) (generation.Request, error) {
	ask, m := o.request(p), p.model.api
	switch {
	case o.chat && m.Template == nil:
		return ask, fmt.Errorf("this model cannot chat: %w; leave out --chat", m.TemplateError)
	case o.chat:
		fmt.Fprintln(out, "  prompt   a user's message, in the model's chat template")
		text, err := m.Template.Render(tokenizer.MessagesJSON([]tokenizer.Message{
			{Role: "user", Content: o.prompt.Value}}),
			tokenizer.RenderOptions{AddGenerationPrompt: true})
		if err != nil {
			return ask, err
		}
		ask.Prompt = m.Tokenizer.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	case m.Template != nil && o.tokenIDs == nil:
		fmt.Fprintln(out, "  prompt   continued as it is; --chat makes it a message in the "+
			"model's chat template")
	}
	return ask, nil
}

// request is what the engines are asked.
func (o *runOptions) request(p *pair) generation.Request {
	d := p.model.api.Defaults
	seed := randomSeed()
	if d.Seed != nil {
		seed = *d.Seed
	}
	r := generation.Request{
		ID: "run", Prompt: o.tokenIDs, MaxTokens: o.maxTokens.Or(d.MaxTokens),
		IgnoreEOS: o.ignoreEOS,
		Sampling: sample.Params{Temperature: o.temperature.Or(d.Temperature), TopP: d.TopP,
			TopK: d.TopK, MinP: d.MinP, Seed: uint64(o.seed.Or(int64(seed)))},
	}
	if r.Prompt == nil {
		r.Prompt = p.model.api.Tokenizer.Encode(o.prompt.Value,
			tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	}
	return r
}

// ran is what one run gave.
type ran struct {
	tokens        []int32
	finish        generation.Finish
	cached        int
	sent          generation.Sent
	first, decode time.Duration // to the first token, and from there to the last
}

// generate drives the calls as a router does: reserve, send, start.
func (p *pair) generate(ctx context.Context, ask generation.Request, text func([]int32)) (ran,
	error) {
	begun := time.Now()
	r := ran{sent: generation.Sent{Chunks: 1}}
	begin := 0
	if len(ask.Prompt) > 1 {
		reserved, err := p.decode.engine.PrepareReceive(ctx, ask, -1)
		if err != nil {
			return r, err
		}
		// What is reserved must not wait for its lease to end when this fails; a generation
		// that began has no reservation any more.
		defer p.decode.engine.Release(context.WithoutCancel(ctx), ask.ID)
		send := generation.Send{Begin: reserved.Matched, End: reserved.End,
			Metadata: reserved.Metadata}
		if send.Begin < send.End {
			if r.sent, err = p.prefill.engine.RemoteSend(ctx, ask, send); err != nil {
				return r, err
			}
		}
		begin = reserved.End
	}
	stream, err := p.decode.engine.StartGenerate(ctx, ask, begin)
	if err != nil {
		return r, err
	}
	for r.finish == "" {
		update, err := stream.Next(ctx)
		if err != nil {
			return r, err
		}
		if r.first == 0 && len(update.Tokens) > 0 {
			// A reader that is late finds several tokens.
			r.first = time.Since(begun) - update.Report.Decode
		}
		r.tokens = append(r.tokens, update.Tokens...)
		r.finish, r.cached, r.decode = update.Finish, update.Report.Cached, update.Report.Decode
		text(update.Tokens)
	}
	return r, nil
}
