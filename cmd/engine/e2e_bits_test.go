package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/plugins"
)

// sampled is a token with the digest of the logits it came from.
type sampled struct {
	Token  int32  `json:"token"`
	Logits string `json:"logits"`
}

// samples reads the debug lines of a log, by the id of the request.
func samples(t *testing.T, log string) map[string][]sampled {
	t.Helper()
	all := map[string][]sampled{}
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Message string `json:"msg"`
			ID      string `json:"id"`
			N       int    `json:"n"`
			sampled
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Message != "token sampled" {
			continue
		}
		if line.N != len(all[line.ID]) {
			t.Fatalf("request %q: output token %d after %d", line.ID, line.N, len(all[line.ID]))
		}
		all[line.ID] = append(all[line.ID], line.sampled)
	}
	return all
}

// outputs is how many tokens each prompt is continued by.
const outputs = 40

// longPrompt crosses pages and the blocks of attention, and ends inside both.
func longPrompt(vocabulary int) []int32 {
	r := rand.New(rand.NewPCG(450, 1))
	prompt := make([]int32, 450)
	for i := range prompt {
		prompt[i] = int32(3 + r.IntN(vocabulary-3))
	}
	return prompt
}

// lone is one engine in this process that does everything itself, and its log.
type lone struct {
	t   *testing.T
	run *running
	log *transcript
}

// startLone builds an engine on a model from a TOML file, as `engine serve` does.
func startLone(t *testing.T, m *loaded, text string) *lone {
	t.Helper()
	file := filepath.Join(t.TempDir(), "engine.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Load(file)
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	l := &lone{t: t, log: newTranscript()}
	log := slog.New(slog.NewJSONHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	policies, err := openPolicies(t.Context(), cfg, plugins.Options{}, &observer{log: log})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := m.model.Share()
	if err != nil {
		t.Fatal(err)
	}
	s := setup{cfg: cfg, role: config.RoleAll, model: shared, context: m.api.Context,
		policies: policies, log: log}
	if l.run, err = s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.run.close()
		_ = policies.Close() // Nothing decides any more.
		_ = shared.Close()
	})
	return l
}

// ask is a greedy request.
func ask(id string, prompt []int32, most int) generation.Request {
	return generation.Request{ID: id, Prompt: prompt, MaxTokens: most, IgnoreEOS: true}
}

// generate runs one request to its end.
func (l *lone) generate(r generation.Request) generation.Report {
	l.t.Helper()
	stream, err := l.run.engine.Generate(l.t.Context(), r)
	if err != nil {
		l.t.Fatal(err)
	}
	for {
		update, err := stream.Next(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		if update.Finish != "" {
			return update.Report
		}
	}
}

// crowded is generate beside eight requests that are there before it and after it: one that ends is
// followed by the next.
func (l *lone) crowded(r generation.Request, vocabulary int) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	var others sync.WaitGroup
	for i := range 8 {
		first := make(chan struct{})
		others.Go(func() {
			chance := rand.New(rand.NewPCG(8, uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				prompt := make([]int32, 1+chance.IntN(60))
				for k := range prompt {
					prompt[k] = int32(3 + chance.IntN(vocabulary-3))
				}
				id := fmt.Sprint(r.ID, " other ", i, ".", n)
				l.continued(ctx, ask(id, prompt, 440), first)
				first = nil
			}
		})
		<-first
	}
	l.generate(r)
	cancel()
	others.Wait()
	id, err := json.Marshal(r.ID)
	if err != nil {
		l.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(l.log.String(), fmt.Sprintf(`"id":%s,"n":0,`, id))
	within, _, ended := strings.Cut(rest, fmt.Sprintf(`"id":%s,"n":%d,`, id, outputs-1))
	beside := strings.Count(within, fmt.Sprintf(`"id":%s other `, id[:len(id)-1]))
	if !ended || beside == 0 {
		l.t.Errorf("%s: %d tokens were sampled beside it", r.ID, beside)
	}
}

// continued runs a request until it or ctx ends, and says when it has begun.
func (l *lone) continued(ctx context.Context, r generation.Request, begun chan<- struct{}) {
	stream, err := l.run.engine.Generate(ctx, r)
	for said := begun == nil; ; {
		if !said {
			close(begun)
			said = true
		}
		if err != nil {
			if ctx.Err() == nil {
				l.t.Errorf("%s: %v", r.ID, err)
			}
			return
		}
		var update generation.Update
		if update, err = stream.Next(ctx); err == nil && update.Finish != "" {
			return
		}
	}
}

// variants computes a prompt in every way that one engine has, and returns the digests of each.
func (b *workbench) variants(c goldenCase, id string) map[string][]sampled {
	t, n := b.t, len(c.PromptIDs)
	chunks := func(size int) int { return (n + size - 1) / size }
	got := map[string][]sampled{}
	for name, w := range map[string]struct {
		lone   *lone
		chunks int
	}{
		"whole": {b.whole, 1}, "chunks of 7": {b.seven, chunks(7)},
		"chunks of 100": {b.hundred, chunks(100)},
	} {
		if report := w.lone.generate(ask(id, c.PromptIDs, outputs)); report.Cached != 0 ||
			report.Chunks != w.chunks {
			t.Errorf("%s, %q: %d tokens cached, %d chunks", name, c.Prompt, report.Cached,
				report.Chunks)
		}
		got[name] = samples(t, w.lone.log.String())[id]
	}
	b.crowd.crowded(ask(id, c.PromptIDs, outputs), b.vocabulary)
	got["beside 8 others"] = samples(t, b.crowd.log.String())[id]

	first, found := outputs, n-1
	if b.window > 0 { // The window of a longer output has passed what the prompt's end saw.
		first = 1
		if out := n - b.window + 1; out > 0 && out%b.page == 0 {
			found = 0
		}
	}
	b.cached.generate(ask(id+" first", c.PromptIDs, first))
	if report := b.cached.generate(ask(id, c.PromptIDs, outputs)); report.Cached != found {
		t.Errorf("%q: %d of %d tokens were found at the second run", c.Prompt, report.Cached, n)
	}
	got["prefix hit"] = samples(t, b.cached.log.String())[id]
	return got
}

// workbench is a model with one engine for each way to compute.
type workbench struct {
	t                                    *testing.T
	vocabulary                           int
	window, page                         int // The window of all layers, or 0.
	whole, seven, hundred, crowd, cached *lone
	prefill, decode                      *node
}

func openBench(t *testing.T, g goldenModel) *workbench {
	t.Helper()
	cfg, _ := config.Load("")
	kv := cmp.Or(g.kv, cfg.KVCache.DType)
	cfg.Model.Path, cfg.KVCache.DType = g.folder, kv
	if g.backend != "" {
		cfg.Backend.Numerics = "tdp"
	}
	m, err := loadModel(cfg, quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.close(context.Background(), slog.New(slog.DiscardHandler)) })
	about := m.model.Config()
	b := &workbench{t: t, vocabulary: about.Vocabulary, page: cfg.KVCache.PageSize}
	if about.UniformWindow {
		b.window = about.Window
	}
	memory := fmt.Sprintf("[kv_cache]\nmemory = \"48MiB\"\ndtype = %q\n", kv)
	uncached := memory + "prefix_cache = false\n"
	b.whole = startLone(t, m, uncached)
	b.seven = startLone(t, m, uncached+"[scheduler]\nchunk_max = 7\n")
	b.hundred = startLone(t, m, uncached+"[scheduler]\nchunk_max = 100\n")
	b.crowd = startLone(t, m, uncached)
	b.cached = startLone(t, m, memory)
	common := fmt.Sprintf("[telemetry]\nlog_level = \"debug\"\n[model]\npath = %q\n"+
		"[kv_cache]\ndtype = %q\n", g.folder, kv)
	b.prefill = serveNode(t, "[node]\nrole = \"prefill\"\n"+common+g.backend+g.prefill)
	b.decode = serveNode(t, "[node]\nrole = \"decode\"\n"+common+g.backend)
	return b
}

// apart computes the prompt in one process and generates in another.
func (b *workbench) apart(c goldenCase, id string) []sampled {
	n := len(c.PromptIDs)
	call := caller{t: b.t, prefill: b.prefill, decode: b.decode, body: fields{
		"prompt": c.PromptIDs, "user": id, "max_tokens": outputs, "temperature": 0,
		"debug_config": fields{"ignore_eos": true},
	}}
	begin := 0
	if n > 1 {
		begin = n - 1
		call.handOver(begin)
	}
	call.start(begin).completion(b.t)
	var got []sampled
	eventually(b.t, patience, func() error {
		if got = samples(b.t, b.decode.err.String())[id]; len(got) < outputs {
			return fmt.Errorf("%d of %d tokens are in the log", len(got), outputs)
		}
		return nil
	})
	return got
}

func TestSameBitsOfTheEmbeddedModel(t *testing.T) {
	g := embeddedGolden()
	sameBits(t, g)
	g.kv = "q8_0"
	t.Run("keys and values in q8_0", func(t *testing.T) { sameBits(t, g) })
}

// TestSameBitsOfTheOrderOfAMX: the class tdp gives the same bits on processors of different kinds,
// and the reference's tokens.
func TestSameBitsOfTheOrderOfAMX(t *testing.T) {
	device, err := cpu.Open(cpu.Options{ISA: cpu.AVX2})
	if err != nil {
		t.Skip(err)
	}
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	g := embeddedGolden()
	g.backend, g.prefill = "[backend]\nnumerics = \"tdp\"\n", "isa = \"avx2\"\n"
	sameBits(t, g)
}

func TestSameBits(t *testing.T) {
	for _, g := range sharedGoldens(t) {
		t.Run(g.name, func(t *testing.T) { sameBits(t, g) })
	}
}

// sameBits wants equal logits, bit for bit, however a prompt was cut, batched, found or moved.
func sameBits(t *testing.T, g goldenModel) {
	b := openBench(t, g)
	cases := append(g.cases(t), goldenCase{Prompt: "450 tokens",
		PromptIDs: longPrompt(b.vocabulary)})
	for i, c := range cases {
		id := fmt.Sprint("case", i)
		got := b.variants(c, id)
		got["two processes"] = b.apart(c, id)
		want := got["whole"]
		if len(want) != outputs {
			t.Fatalf("%q: %d tokens", c.Prompt, len(want))
		}
		for k, token := range c.GreedyIDs {
			if g.kv == "" && want[k].Token != token {
				t.Errorf("%q: output token %d is %d, want %d", c.Prompt, k, want[k].Token, token)
			}
		}
		for name, s := range got {
			if !slices.Equal(s, want) {
				t.Errorf("%q: %s differs from the whole prompt on one engine:\n%v\n%v", c.Prompt,
					name,
					s, want)
			}
		}
	}
	rest(t, b.prefill, b.decode)
	b.prefill.stop()
	b.decode.stop()
}
