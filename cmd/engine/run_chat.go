package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/tokenizer"
)

// chat is a conversation on a terminal: one user, one model, and the prefill and the decode engine
// that each turn goes through.
type chat struct {
	streams
	model    *api.Model
	generate func(context.Context, generation.Request, func([]int32)) (ran, error)
	policy   func() (calls int64, wall time.Duration) // spent so far

	lines      <-chan typed
	interrupts <-chan os.Signal

	settings chatSettings
	system   string
	turns    []tokenizer.Message // user and assistant by turns
	count    int                 // requests so far
	last     turnReport
	// armed is set by an interrupt; one more, with nothing typed between, leaves the loop.
	armed atomic.Bool
}

// chatSettings are what a turn is asked with. A seed that is not set is drawn for each.
type chatSettings struct {
	maxTokens int // 0 is what the context leaves
	sampling  sample.Params
	seed      *uint64
	ignoreEOS bool
}

// turnReport is what the last turn took.
type turnReport struct {
	prompt int // tokens
	ran    ran
	calls  int64
	wall   time.Duration
}

// runChat talks until the user leaves.
func runChat(ctx context.Context, o runOptions, s streams, p *pair) error {
	m := p.model.api
	if m.Template == nil {
		return fmt.Errorf("this model cannot chat: %w; give a prompt as an argument",
			m.TemplateError)
	}
	// From here on an interrupt ends an answer, not the process.
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	c := &chat{streams: s, model: m, generate: p.generate, policy: p.policySpent,
		lines: readLines(s.in), interrupts: interrupts, settings: o.chatSettings(p)}
	fmt.Fprintln(s.err, "  chat     /help lists what else can be typed · Ctrl-C ends an answer, "+
		"Ctrl-D leaves")
	return c.loop(ctx)
}

// chatSettings are the flags, else the model's own.
func (o *runOptions) chatSettings(p *pair) chatSettings {
	ask := o.request(p)
	s := chatSettings{maxTokens: ask.MaxTokens, sampling: ask.Sampling, ignoreEOS: o.ignoreEOS}
	if o.seed.Set || p.model.api.Defaults.Seed != nil {
		s.seed = &ask.Sampling.Seed
	}
	return s
}

// loop takes line by line. It ends with the input, /quit, a second interrupt, or ctx.
func (c *chat) loop(ctx context.Context) error {
	message := ""
	for {
		if message == "" {
			fmt.Fprint(c.err, ">>> ")
		} else {
			fmt.Fprint(c.err, "... ")
		}
		select {
		case line, more := <-c.lines:
			if !more {
				fmt.Fprintln(c.err)
				return nil
			}
			c.armed.Store(false)
			if line.err != nil {
				fmt.Fprintf(c.err, "error: %v\n", line.err)
				message = ""
				continue
			}
			if rest, goesOn := strings.CutSuffix(line.text, `\`); goesOn {
				message += rest + "\n"
				continue
			}
			whole := message + line.text
			message = ""
			if c.take(ctx, whole) {
				return nil
			}
		case <-c.interrupts:
			fmt.Fprintln(c.err)
			if c.armed.Swap(true) {
				return nil
			}
			message = ""
			fmt.Fprintln(c.err, "  Ctrl-C again leaves; so does Ctrl-D")
		case <-ctx.Done():
			fmt.Fprintln(c.err)
			return nil
		}
	}
}

// take does what a line says. It reports whether the user wants to leave.
func (c *chat) take(ctx context.Context, line string) (leave bool) {
	switch {
	case strings.TrimSpace(line) == "":
	case strings.HasPrefix(line, "/"):
		leave, err := c.command(line)
		if err != nil {
			fmt.Fprintf(c.err, "error: %v\n", err)
		}
		return leave
	default:
		if err := c.turn(ctx, line); err != nil {
			fmt.Fprintf(c.err, "error: %v\n", err)
		}
	}
	return ctx.Err() != nil
}

// turn says something and shows the answer. A message that fails is taken back; an answer that is
// stopped stays as far as it came.
func (c *chat) turn(ctx context.Context, text string) error {
	turns := append(c.turns[:len(c.turns):len(c.turns)],
		tokenizer.Message{Role: "user", Content: text})
	ask, err := c.request(turns)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release := c.onInterrupt(cancel)
	said := &spoken{out: c.out, words: c.model.Tokenizer.NewStream(true)}
	calls, wall := c.policy()
	r, err := c.generate(ctx, ask, said.take)
	release()
	said.end()
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	after, wallAfter := c.policy()
	c.last = turnReport{prompt: len(ask.Prompt), ran: r, calls: after - calls,
		wall: wallAfter - wall}
	switch full := len(ask.Prompt)+len(r.tokens) >= c.model.Context; {
	case err != nil:
		fmt.Fprintf(c.err, "  stopped after %s\n", plural(len(r.tokens), "token"))
	case r.finish == generation.FinishLength && full:
		fmt.Fprintf(c.err, "  the answer ends here: the context of %d tokens is full\n",
			c.model.Context)
	case r.finish == generation.FinishLength:
		fmt.Fprintf(c.err, "  the answer ends here: max_tokens is %d\n", ask.MaxTokens)
	}
	if answer := said.whole.String(); answer != "" || err == nil {
		c.turns = append(turns, tokenizer.Message{Role: "assistant", Content: answer})
	}
	return nil
}

// request renders a conversation and refuses one that does not fit: nothing of it is ever cut.
func (c *chat) request(turns []tokenizer.Message) (generation.Request, error) {
	if c.system != "" {
		turns = append([]tokenizer.Message{{Role: "system", Content: c.system}}, turns...)
	}
	text, err := c.model.Template.Render(tokenizer.MessagesJSON(turns),
		tokenizer.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		return generation.Request{}, fmt.Errorf("%w; the message was taken back", err)
	}
	ids := c.model.Tokenizer.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	if len(ids) >= c.model.Context {
		return generation.Request{}, fmt.Errorf("with this message the conversation has %d "+
			"tokens, but the context has %d and the answer needs some of them; the message was "+
			"taken back, nothing was cut; /new begins a new conversation", len(ids),
			c.model.Context)
	}
	c.count++
	ask := generation.Request{ID: fmt.Sprintf("chat-%d", c.count), Prompt: ids,
		MaxTokens: c.settings.maxTokens, Sampling: c.settings.sampling,
		IgnoreEOS: c.settings.ignoreEOS}
	if c.settings.seed == nil {
		ask.Sampling.Seed = randomSeed()
	}
	return ask, nil
}

// onInterrupt calls stop when the user presses Ctrl-C, until release is called.
func (c *chat) onInterrupt(stop func()) (release func()) {
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.interrupts:
			c.armed.Store(true)
			stop()
		case <-over:
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// spoken is an answer as it comes.
type spoken struct {
	out   io.Writer
	words *tokenizer.Stream
	whole strings.Builder
}

func (s *spoken) take(tokens []int32) {
	for _, id := range tokens {
		s.write(s.words.Push(id))
	}
}

func (s *spoken) write(text string) {
	s.whole.WriteString(text)
	_, _ = io.WriteString(s.out, text) // A terminal that is gone ends the process by a signal.
}

// end writes what was held back, and begins a new line.
func (s *spoken) end() {
	s.write(s.words.Flush())
	fmt.Fprintln(s.out)
}
