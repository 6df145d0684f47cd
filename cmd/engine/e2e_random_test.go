package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/sample"
	"github.com/kvrelay/engine/host/transfer"
	"github.com/kvrelay/engine/plugins"
)

// TestRandomConfigurations holds what always holds: a request gets the same tokens and the same
// log-probabilities under any policy, chunk length, batch, pool, cache and placement. Two engines
// of a random configuration each answer random requests at once, alone or over a hand-off in all
// its forms; each answer is compared with that of one engine that computes the request by itself.
// ENGINE_LONG=1 tries many configurations, ENGINE_RANDOM_SEED=N one.
func TestRandomConfigurations(t *testing.T) {
	cfg, _ := config.Load("")
	m, err := loadModel(cfg, quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	defer m.close(context.Background(), slog.New(slog.DiscardHandler))
	seed, seeds := rand.Uint64()>>32, uint64(6)
	if os.Getenv("ENGINE_LONG") != "" {
		seeds = 300
	}
	if text := os.Getenv("ENGINE_RANDOM_SEED"); text != "" {
		seeds = 1
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	marks := map[string]int{}
	for ; seeds > 0 && !t.Failed(); seeds-- {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { randomPair(t, m, seed, marks) })
		seed++
	}
	t.Logf("reached: %v", marks)
}

// peer is one engine of a random configuration, with a socket.
type peer struct {
	*running
	text   string
	drafts int // Models beside the main one: the same one again.
}

// randomConfig is a file with most numbers drawn. Page sizes must agree between peers.
func randomConfig(r *rand.Rand, pageSize, drafts int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	budget := 12 + r.IntN(200)
	line("[model]\nmax_model_len = 160")
	line("[scheduler]\ntoken_budget = %d\nmax_num_seqs = %d", budget, 1+r.IntN(8))
	line("chunk_max = %d\nchunk_align = %d", 12+r.IntN(budget-11), 1+r.IntN(7))
	line("max_admit = %d\nreserve_pages = %d", 1+r.IntN(4), r.IntN(2))
	const token = 2 << 10 // Bytes of keys and values of the embedded model.
	pages := 160/pageSize + 3 + r.IntN(200/pageSize)
	line("[kv_cache]\npage_size = %d\nmemory = \"%dKiB\"", pageSize,
		(1+drafts)*pages*pageSize*token>>10)
	line("prefix_cache = %t", r.IntN(4) > 0)
	if r.IntN(2) == 0 {
		line("prefix_memory = \"%dKiB\"", r.IntN(300))
	}
	active := pick("builtin:fcfs", "builtin:sjf-aging", "mine", "mine")
	line("[policy]\nactive = %q", active)
	if active == "mine" {
		line("[policies.mine]\nscore = %q", pick("remaining_prefill", "-remaining_prefill",
			"user_tag", "-prompt_tokens + 3*generated", "pages_held"))
	}
	return b.String()
}

// open starts an engine of a configuration behind a socket of its own.
func (p *peer) open(t *testing.T, m *loaded) {
	file := filepath.Join(t.TempDir(), "engine.toml")
	if err := os.WriteFile(file, []byte(p.text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Load(file)
	if config.Failed(problems) {
		t.Fatalf("%v\n%s", problems, p.text)
	}
	log := slog.New(slog.DiscardHandler)
	policies, err := openPolicies(t.Context(), cfg, plugins.Options{}, &observer{log: log})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := m.model.Share()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := setup{cfg: cfg, role: config.RoleAll, model: shared, context: 160, policies: policies,
		hidden: m.api.Hidden, address: listener.Addr().String(), log: log}
	for range p.drafts {
		draft, err := m.model.Share()
		if err != nil {
			t.Fatal(err)
		}
		s.drafts = append(s.drafts, draft)
	}
	if p.running, err = s.start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, p.text)
	}
	mux := transfer.NewMux(listener, p.receiver)
	t.Cleanup(func() {
		p.close()
		_ = mux.Close() // Nobody listens any more.
		_ = policies.Close()
		_ = shared.Close()
	})
}

// said is an answer.
type said struct {
	tokens   []int32
	logprobs []generation.Logprobs
}

func heard(ctx context.Context, s generation.Stream) (all said, err error) {
	for {
		u, err := s.Next(ctx)
		all.tokens = append(all.tokens, u.Tokens...)
		all.logprobs = append(all.logprobs, u.Logprobs...)
		if err != nil || u.Finish != "" {
			return all, err
		}
	}
}

// randomAsk is a request whose prompt begins like others; some of it may come as vectors.
func randomAsk(r *rand.Rand, rows table, n int) generation.Request {
	words := rand.New(rand.NewPCG(uint64(r.IntN(2)), 5))
	prompt := make([]int32, r.IntN(80))
	for i := range prompt {
		prompt[i] = int32(3 + words.IntN(1000))
	}
	for range 1 + r.IntN(30) {
		prompt = append(prompt, int32(3+r.IntN(1000)))
	}
	ask := generation.Request{ID: fmt.Sprint("id", n), Prompt: prompt, IgnoreEOS: true,
		MaxTokens: 1 + r.IntN(30), Logprobs: true, TopLogprobs: r.IntN(3)}
	ask.Hints.Tag = r.Uint64N(9)
	ask.Sampling = sample.Params{Seed: r.Uint64(), Temperature: float64(r.IntN(2)) * 0.9,
		TopK: r.IntN(2) * 40, FrequencyPenalty: float64(r.IntN(2)) * 0.4}
	for at := r.IntN(60); r.IntN(2) == 0 && at < len(prompt); at += r.IntN(30) {
		count := min(1+r.IntN(12), len(prompt)-at)
		e := generation.Embedding{Start: at, Rows: count}
		for _, token := range prompt[at : at+count] {
			e.Values = append(e.Values, rows.values[int(token)*rows.width:][:rows.width]...)
		}
		e.Digest = sha256.Sum256(fmt.Append(nil, prompt[at:at+count]))
		ask.Embeds = append(ask.Embeds, e)
		for i := range count {
			prompt[at+i] = generation.Placeholder
		}
		at += count
	}
	return ask
}

// trio are engines between which a request may be answered: one sends to another, and the roomy one
// also to itself. Of two small ones that each reserve for the other's sends, both could be full of
// reservations until a lease ends.
type trio struct{ sends, receives, roomy *peer }

// answer has a request answered in a random way.
func (e trio) answer(
	ctx context.Context, r *rand.Rand, ask generation.Request, marks func(string),
) (said, error) {
	n, a, b := len(ask.Prompt), e.sends, e.receives
	way := r.IntN(8)
	if way < 2 || n < 2 {
		marks("local")
		s, err := []*peer{a, b}[way%2].engine.Generate(ctx, ask)
		if err != nil {
			return said{}, err
		}
		return heard(ctx, s)
	}
	if way == 2 {
		marks("loopback")
		a, b = e.roomy, e.roomy
	}
	end := n - 1
	if way == 3 || way == 4 {
		marks("split")
		end = r.IntN(n)
	}
	reserved, err := b.engine.PrepareReceive(ctx, ask, end)
	if err != nil {
		return said{}, err
	}
	drop := func(err error) (said, error) {
		return said{}, errors.Join(err, b.engine.Release(context.WithoutCancel(ctx), ask.ID))
	}
	if way == 5 { // The decode engine computes what never comes.
		marks("nothing sent")
	} else if reserved.Matched < reserved.End {
		_, err = a.engine.RemoteSend(ctx, ask, generation.Send{Begin: reserved.Matched,
			End: reserved.End, Metadata: reserved.Metadata})
		if err != nil {
			return drop(err)
		}
		marks("sent")
	}
	begin := reserved.End
	if way == 6 && begin > 0 {
		marks("begin before the end")
		begin = r.IntN(begin)
	}
	if way == 7 {
		marks("committed")
		if _, err := b.engine.Commit(ctx, ask.ID); err != nil {
			return drop(err)
		}
		begin = 0
	}
	s, err := b.engine.StartGenerate(ctx, ask, begin)
	if err != nil {
		return drop(err)
	}
	return heard(ctx, s)
}

// randomPair is the test for one seed.
func randomPair(t *testing.T, m *loaded, seed uint64, marks map[string]int) {
	r := rand.New(rand.NewPCG(seed, 1))
	pageSize := 4 << r.IntN(4)
	drafts := max(0, r.IntN(4)-1)
	var peers [2]*peer
	for i := range peers {
		peers[i] = &peer{text: randomConfig(r, pageSize, drafts), drafts: drafts}
		peers[i].open(t, m)
	}
	alone := &peer{text: "[model]\nmax_model_len = 160\n[kv_cache]\nprefix_cache = false\n" +
		"memory = \"4MiB\"\n"}
	alone.open(t, m)
	rows := embeddedTable(t)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for n := range 24 {
		ask := randomAsk(r, rows, n)
		chance := rand.New(rand.NewPCG(seed, uint64(n)+100))
		s, err := alone.engine.Generate(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		want, err := heard(t.Context(), s)
		if err != nil || len(want.tokens) != ask.MaxTokens {
			t.Fatalf("%v %v", want.tokens, err)
		}
		wait.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leaves := chance.IntN(6) == 0
			if leaves {
				go func() {
					for range chance.IntN(60) {
						_, _, _ = peers[0].engine.Stats(ctx)
					}
					cancel()
				}()
			}
			engines := trio{sends: peers[0], receives: peers[1], roomy: alone}
			got, err := engines.answer(ctx, rand.New(rand.NewPCG(seed, uint64(n)+500)), ask,
				func(mark string) {
					mu.Lock()
					marks[mark]++
					mu.Unlock()
				})
			if leaves && err != nil {
				return
			}
			if err != nil || !slices.Equal(got.tokens, want.tokens) ||
				!reflect.DeepEqual(got.logprobs, want.logprobs) {
				t.Errorf("request %d of %d tokens: %v\n%v, alone\n%v\n%s\n%s", n, len(ask.Prompt),
					err, got.tokens, want.tokens, peers[0].text, peers[1].text)
			}
		})
	}
	wait.Wait()
	for _, p := range append(peers[:], alone) {
		p.rests(t, marks)
	}
}

// rests waits until nothing is left of any request and wants every page free or cached.
func (p *peer) rests(t *testing.T, marks map[string]int) {
	t.Helper()
	eventually(t, patience, func() error {
		stats, leaked, err := p.engine.Stats(t.Context())
		left := stats.Held + stats.Quarantined + leaked
		for _, n := range stats.States {
			left += n
		}
		if err != nil || left > 0 {
			return fmt.Errorf("%+v, %d leaked, %v", stats, leaked, err)
		}
		marks["preempted"] += int(stats.Preempted)
		marks["evicted"] += int(stats.Evicted)
		return nil
	})
}
