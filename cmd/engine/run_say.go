package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// sayer writes what a run has to say: the text to stdout as it comes, all else to stderr; or one
// JSON document.
type sayer struct {
	options runOptions
	streams
	pair  *pair
	ask   generation.Request
	words *tokenizer.Stream
	whole strings.Builder
	lost  error // the first write to stdout that failed
}

func newSayer(o runOptions, s streams, p *pair, ask generation.Request) *sayer {
	say := &sayer{options: o, streams: s, pair: p, ask: ask,
		words: p.model.api.Tokenizer.NewStream(true)}
	for _, id := range ask.Prompt {
		if o.chat {
			break // An answer begins anew.
		}
		say.words.Push(id) // The leading space of a word depends on what stands before it.
	}
	return say
}

// opening says what runs.
func (p *pair) opening(w io.Writer, cfg *config.Config) {
	fmt.Fprintf(w, "  model    %s · %s · context %d · %d layers\n", p.model.api.Names[0],
		size(int(p.model.need.Weights)), p.model.api.Context, p.model.model.Config().Layers)
	fmt.Fprintf(w, "  roles    prefill → transfer → decode in this process · policy %s\n",
		strings.Join(deciding(cfg), "+"))
}

// opening shows the prompt where people look at the text.
func (s *sayer) opening() {
	if !s.options.json && s.options.prompt.Set && isTerminal(s.err) {
		fmt.Fprint(s.err, s.options.prompt.Value)
	}
}

// text takes tokens as they come.
func (s *sayer) text(tokens []int32) {
	for _, id := range tokens {
		s.write(s.words.Push(id))
	}
}

func (s *sayer) write(text string) {
	s.whole.WriteString(text)
	if s.options.json {
		return
	}
	if _, err := io.WriteString(s.out, text); err != nil && s.lost == nil {
		s.lost = fmt.Errorf("write the text: %w", err)
	}
}

// closing ends the text and says what happened.
func (s *sayer) closing(r ran) error {
	s.write(s.words.Flush())
	calls, wall := s.pair.policySpent()
	if s.options.json {
		return s.document(r, calls, wall)
	}
	s.write("\n")
	fmt.Fprintf(s.err, "  %s\n", r.sum(len(s.ask.Prompt), string(r.finish)))
	fmt.Fprintf(s.err, "  prefill %s · kv %s sent in %s · policy %d calls, %s\n",
		plural(r.sent.Chunks, "chunk"), size(int(r.sent.Bytes)), milliseconds(r.sent.Elapsed),
		calls, milliseconds(wall))
	return s.lost
}

// sum says what a run was and how fast, of a prompt of so many tokens. The rate of prefill is that
// of what was computed of it until the first token came: the way to the decode engine and that
// one's first step are part of it. The rate of decode is that of the tokens after the first, as the
// engine made them; without any there is none.
func (r ran) sum(prompt int, finish string) string {
	said := fmt.Sprintf("%d → %d tokens (%s) · first %s", prompt, len(r.tokens), finish,
		milliseconds(r.first))
	if r.first > 0 {
		said += fmt.Sprintf(" · prefill %.0f tok/s", float64(prompt-r.cached)/r.first.Seconds())
	}
	if rest := len(r.tokens) - 1; rest > 0 && r.decode > 0 {
		said += fmt.Sprintf(" · decode %.0f tok/s", float64(rest)/r.decode.Seconds())
	}
	return said + fmt.Sprintf(" · cached %d", r.cached)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// policySpent adds up both engines' policy calls.
func (p *pair) policySpent() (calls int64, wall time.Duration) {
	for _, o := range p.observers {
		c, w := o.spent()
		calls, wall = calls+c, wall+w
	}
	return calls, wall
}

// document is the answer of --json.
type document struct {
	PromptTokenIDs []int32      `json:"prompt_token_ids"`
	TokenIDs       []int32      `json:"token_ids"`
	Text           string       `json:"text"`
	FinishReason   string       `json:"finish_reason"`
	Usage          openai.Usage `json:"usage"`
	Disagg         handoff      `json:"disagg"`
}

// handoff is what the way over two engines took.
type handoff struct {
	Chunks      int     `json:"chunks"`
	BytesSent   int64   `json:"bytes_sent"`
	TransferMS  float64 `json:"transfer_ms"`
	Policy      string  `json:"policy"`
	PolicyCalls int64   `json:"policy_calls"`
	PolicyUS    float64 `json:"policy_us"`
}

func (s *sayer) document(r ran, calls int64, wall time.Duration) error {
	if r.tokens == nil {
		r.tokens = []int32{}
	}
	encoder := json.NewEncoder(s.out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document{
		PromptTokenIDs: s.ask.Prompt, TokenIDs: r.tokens, Text: s.whole.String(),
		FinishReason: string(r.finish),
		Usage:        openai.NewUsage(len(s.ask.Prompt), len(r.tokens), r.cached),
		Disagg: handoff{
			Chunks: r.sent.Chunks, BytesSent: r.sent.Bytes,
			TransferMS: round3(float64(r.sent.Elapsed) / float64(time.Millisecond)),
			Policy:     s.pair.observers[0].name(), PolicyCalls: calls,
			PolicyUS: round3(float64(wall) / float64(time.Microsecond)),
		},
	})
}

// round3 keeps three decimals.
func round3(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }
