package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/access"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/scheduler"
)

// silent is a model that finds every token equally likely.
type silent struct{ words int }

func (m silent) Run(b *batch.Batch) ([][]float32, error) {
	var rows [][]float32
	for _, item := range b.Items {
		for range item.Logits {
			rows = append(rows, make([]float32, m.words))
		}
	}
	return rows, nil
}

// chooser lets two requests wait for each other and then decides by one field which of them is
// computed first: B if the field speaks for it, else A, which came first. A request that is to lead
// is computed before, and held back from its second token on until then.
type chooser struct {
	second func(v *abi.View, a, b *abi.Record) bool
	leads  bool
	seen   chan int // how many wait, when that changes
	mu     sync.Mutex
	count  int
	chosen uint64
}

func (p *chooser) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var waiting []uint32
	for slot := range v.Records {
		r := &v.Records[slot]
		if r.State != 0 && r.State&abi.StateDecoding == 0 && r.RemainingPrefill > 0 {
			waiting = append(waiting, uint32(slot))
		}
		if p.chosen == 0 && r.State&abi.StateDecoding != 0 {
			out = append(out, abi.Decision{Slot: uint32(slot), IDLow: uint32(r.ID),
				Action: abi.ActionSkip})
		}
	}
	slices.SortFunc(waiting, func(a, b uint32) int {
		return cmp.Compare(v.Records[a].ID, v.Records[b].ID)
	})
	if p.count != len(waiting) && p.chosen == 0 {
		p.count = len(waiting)
		p.seen <- p.count
	}
	run := func(slot uint32) []abi.Decision {
		return append(out, abi.Decision{Slot: slot, IDLow: uint32(v.Records[slot].ID),
			Tokens: abi.TokensAuto})
	}
	switch {
	case len(waiting) == 0 || p.chosen == 0 && len(waiting) < 2 && !p.leads:
		return out, nil
	case p.chosen != 0 || p.leads:
		p.leads = false
		return run(waiting[0]), nil
	}
	a, b := &v.Records[waiting[0]], &v.Records[waiting[1]]
	p.chosen = a.ID
	if p.second(v, a, b) {
		p.chosen = b.ID
		return run(waiting[1]), nil
	}
	return run(waiting[0]), nil
}

// wish is a way in which a request can differ, and the field that shows it.
type wish struct {
	name    string
	body    string // fields of B, with a comma before
	headers []string
	second  func(v *abi.View, a, b *abi.Record) bool
	leads   []string // headers of a third request, which is decoding by then
}

func more[T int32 | uint32 | uint64 | int64 | uint8](
	of func(*abi.Record) T,
) func(*abi.View, *abi.Record, *abi.Record) bool {
	return func(_ *abi.View, a, b *abi.Record) bool { return of(b) > of(a) }
}

func wishes() []wish {
	priority := more(func(r *abi.Record) int32 { return r.Priority })
	deadline := more(func(r *abi.Record) int64 { return r.DeadlineNS })
	tenant := more(func(r *abi.Record) uint32 { return r.Tenant })
	group := more(func(r *abi.Record) uint32 { return r.Group })
	return []wish{
		{name: "priority in the body", body: `,"priority":3`, second: priority},
		{name: "X-Priority", headers: []string{"X-Priority", "3"}, second: priority},
		{name: "X-Deadline-Ms", headers: []string{"X-Deadline-Ms", "9000"}, second: deadline},
		{name: "a class's deadline", headers: []string{"X-Class", "interactive"}, second: deadline},
		{name: "X-Tenant", headers: []string{"X-Tenant", "acme"}, second: tenant},
		{name: "an API key", headers: []string{"Authorization", "Bearer blue"}, second: tenant},
		{name: "a tenant's weight", headers: []string{"X-Tenant", "heavy"},
			second: func(v *abi.View, a, b *abi.Record) bool {
				return v.Tenants[b.Tenant].WeightMilli > v.Tenants[a.Tenant].WeightMilli
			}},
		{name: "a tenant's max_seqs", headers: []string{"X-Tenant", "heavy"},
			second: func(v *abi.View, a, b *abi.Record) bool {
				return v.Tenants[b.Tenant].MaxSeqs > v.Tenants[a.Tenant].MaxSeqs
			}},
		{name: "X-Class", headers: []string{"X-Class", "batch"},
			second: more(func(r *abi.Record) uint8 { return r.Class })},
		{name: "X-Policy-Tag", headers: []string{"X-Policy-Tag", "5"},
			second: more(func(r *abi.Record) uint64 { return r.UserTag })},
		{name: "X-Policy-Group", headers: []string{"X-Policy-Group", "5"}, second: group},
		{name: "n", body: `,"n":2`, second: group},
		{name: "predicted_output", body: `,"predicted_output":4`,
			second: more(func(r *abi.Record) uint32 { return r.PredictedOutput })},
		{name: "max_tokens", body: `,"max_tokens":4`,
			second: more(func(r *abi.Record) uint32 { return r.MaxNew })},
		{name: "the prompt's length", body: `,"prompt":[5,6,7]`,
			second: more(func(r *abi.Record) uint32 { return r.PromptTokens })},
		{name: "the prompt's first page", body: `,"prompt":[5,6,7,8]`,
			second: more(func(r *abi.Record) uint64 { return r.PrefixHash })},
		{name: "a class's gap between tokens", leads: []string{"X-Class", "interactive"},
			second: func(v *abi.View, _, _ *abi.Record) bool { return v.Header.DecodeDueNS > 0 }},
	}
}

// TestWishesReachThePolicy sends two requests over HTTP that differ in one wish: a policy that
// looks at nothing but what shows the wish decides for the second, and without it for the first.
func TestWishesReachThePolicy(t *testing.T) {
	for _, w := range wishes() {
		t.Run(w.name, func(t *testing.T) {
			for _, wished := range []bool{false, true} {
				if got := chosen(t, w, wished); got != wished {
					t.Errorf("wished %t, the second was chosen %t", wished, got)
				}
			}
		})
	}
}

// chosen reports whether the policy decides for the second of two requests.
func chosen(t *testing.T, w wish, wished bool) bool {
	t.Helper()
	p := &chooser{second: w.second, seen: make(chan int, 16), leads: w.leads != nil}
	handler, stop := serveWishes(t, p)
	defer stop()
	var wait sync.WaitGroup
	send := func(body string, headers []string) {
		wait.Go(func() {
			r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(
				`{"max_tokens":2,"ignore_eos":true,"prompt":[5,6]`+body+`}`))
			r.Header.Set("Authorization", "Bearer plain")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, r)
			if answer.Code != http.StatusOK {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
		})
	}
	waiting := func(want int) {
		for n := range p.seen {
			if n == want {
				return
			}
		}
	}
	if w.leads != nil {
		headers := w.leads
		if !wished {
			headers = nil
		}
		send(`,"max_tokens":200`, headers)
		waiting(1)
		waiting(0)
	}
	send("", nil)
	waiting(1)
	if wished {
		send(w.body, w.headers)
	} else {
		send("", nil)
	}
	wait.Wait()
	first := uint64(1)
	if w.leads != nil {
		first++
	}
	return p.chosen != first
}

// serveWishes is an engine of one policy behind the API.
func serveWishes(t *testing.T, p scheduler.Policy) (http.Handler, func()) {
	t.Helper()
	cfg := config.Default()
	m, err := apiModel(cfg, place{name: "m"}, model.Config{Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tenants = []config.Tenant{{Name: "heavy", Weight: 2, MaxSeqs: 5}}
	cfg.Class.Interactive = config.Class{Deadline: time.Minute, ITL: time.Minute}
	s, err := scheduler.New(scheduler.Options{PageSize: 4, Pages: 256, MaxModelLen: 256,
		PrefixPages: -1, Limits: scheduler.Limits{MaxSeqs: 8, TokenBudget: 64, MaxQueue: 8}}, p)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{
		Models:    []engine.Runner{silent{m.Tokenizer.VocabSize()}},
		Scheduler: s, Context: 256, MaxPending: 16, Shares: shares(cfg),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	gate := access.New(access.Rules{Required: true, Keys: []access.Key{
		{Name: "plain", Hash: sha256.Sum256([]byte("plain")), Models: []string{"*"}},
		{Name: "blue", Hash: sha256.Sum256([]byte("blue")), Tenant: "blue", Models: []string{"*"}},
	}}, time.Now)
	var source generation.Source = e
	server := api.New(api.Options{
		Model:  func() (*api.Model, *openai.Error) { return m, nil },
		Source: source, Seed: func() uint64 { return 1 }, MaxBody: 1 << 16, MaxN: 4, MaxStop: 4,
		Gate: gate, Metrics: http.NotFoundHandler(),
	})
	return server.API(), func() {
		cancel()
		running.Wait()
	}
}

// shedder refuses every request, with a reason.
type shedder struct{}

func (shedder) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	for slot := range v.Records {
		if r := &v.Records[slot]; r.State != 0 {
			out = append(out, abi.Decision{Slot: uint32(slot), IDLow: uint32(r.ID),
				Action: abi.ActionShed, Reason: 42})
		}
	}
	return out, nil
}

func (shedder) Answered() (string, uint64, uint32) { return "shedder", abi.CapShed, 0 }

// TestShedRequestsAreToldSo: 503 with Retry-After and the policy's reason, of a stream too.
func TestShedRequestsAreToldSo(t *testing.T) {
	handler, stop := serveWishes(t, shedder{})
	defer stop()
	for _, stream := range []bool{false, true} {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(
			fmt.Sprintf(`{"prompt":[5,6],"stream":%t}`, stream)))
		r.Header.Set("Authorization", "Bearer plain")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			!strings.Contains(w.Body.String(), `"request_shed"`) ||
			!strings.Contains(w.Body.String(), "reason 42") {
			t.Errorf("stream %t: %d %v %s", stream, w.Code, w.Header(), w.Body)
		}
	}
}
