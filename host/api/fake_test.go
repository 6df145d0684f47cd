package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// source answers every request with the tokens of a text, one an update, or, under a constraint,
// with tokens drawn among those allowed.
type source struct {
	words *tokenizer.Tokenizer
	text  string

	mu   sync.Mutex
	asks []generation.Request
}

func (s *source) Generate(_ context.Context, r generation.Request) (generation.Stream, error) {
	s.mu.Lock()
	s.asks = append(s.asks, r)
	s.mu.Unlock()
	var tokens []int32
	if r.Constraint != nil {
		var err error
		if tokens, err = drawn(r, s.words.VocabSize()); err != nil {
			return nil, err
		}
	} else {
		tokens = s.words.Encode(s.text, tokenizer.EncodeOptions{})
	}
	return &script{ask: r, tokens: tokens}, nil
}

// drawn draws a whole output under the request's constraint.
func drawn(r generation.Request, words int) ([]int32, error) {
	chance, logits := rand.New(rand.NewPCG(r.Sampling.Seed, 0)), make([]float32, words)
	var out []int32
	for left := r.MaxTokens; left > 0; left-- {
		clear(logits)
		r.Constraint.Mask(logits, left, nil)
		id := int32(chance.IntN(words))
		for n := 0; math.IsInf(float64(logits[id]), -1); n++ {
			if id = (id + 1) % int32(words); n == words {
				return nil, errors.New("nothing is allowed")
			}
		}
		out = append(out, id)
		if r.Constraint.Accept(id) {
			break
		}
	}
	return out, nil
}

// script is an output that is known before.
type script struct {
	ask     generation.Request
	tokens  []int32
	stopped bool
}

func (s *script) Next(context.Context) (generation.Update, error) {
	u := generation.Update{Report: generation.Report{Cached: 3}}
	if len(s.tokens) == 0 || s.stopped {
		u.Finish = generation.FinishStop
		return u, nil
	}
	u.Tokens, s.tokens = s.tokens[:1], s.tokens[1:]
	if s.ask.Logprobs {
		at := generation.Logprobs{Chosen: generation.Logprob{ID: u.Tokens[0], Logprob: -0.5}}
		for i := range int32(s.ask.TopLogprobs) {
			at.Top = append(at.Top, generation.Logprob{ID: 40 + i, Logprob: -1 - float64(i)})
		}
		at.Top = append(at.Top, generation.Logprob{ID: 60, Logprob: math.Inf(-1)})
		u.Logprobs = []generation.Logprobs{at}
	}
	return u, nil
}

func (s *script) Stop() { s.stopped = true }

// bench is a server over a fake source.
type bench struct {
	t       *testing.T
	source  *source
	model   *Model
	handler http.Handler
}

func newBench(t *testing.T, text string) *bench {
	t.Helper()
	tok, err := tokenizer.Load(embedded.FS())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, source: &source{words: tok, text: text}}
	b.model = &Model{Names: []string{"m", "org/m"}, Context: 512, Created: time.Unix(1, 0),
		Tokenizer: tok, Defaults: openai.Defaults{Temperature: 1, MaxTokens: 200}}
	if b.model.Template, err = tok.ChatTemplate(""); err != nil {
		t.Fatal(err)
	}
	b.handler = New(Options{
		Model:  func() (*Model, *openai.Error) { return b.model, nil },
		Source: b.source, Seed: func() uint64 { return 77 }, MaxBody: 1 << 16, MaxStop: 4, MaxN: 3,
		MaxHeader: 4096, Metrics: http.NotFoundHandler(),
	}).API()
	return b
}

// send makes a request; headers are pairs.
func (b *bench) send(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// post posts a body and decodes the answer.
func (b *bench) post(path, body string, to any) {
	b.t.Helper()
	w := b.send("POST", path, body)
	if w.Code != http.StatusOK {
		b.t.Fatalf("%s %s: status %d: %s", path, body, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		b.t.Fatalf("%v: %s", err, w.Body)
	}
}

// events posts a body and decodes the events of the answer.
func events[T any](b *bench, path, body string) []T {
	b.t.Helper()
	w := b.send("POST", path, body)
	var all []T
	r := openai.NewEventReader(w.Body)
	for {
		data, err := r.Next()
		if err != nil {
			return all
		}
		var event T
		if err := json.Unmarshal(data, &event); err != nil {
			b.t.Fatalf("%v: %s", err, data)
		}
		all = append(all, event)
	}
}
