package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/config"
)

// TestWindow: pages slide out of a model's window while a prompt is cut, batched, found and moved,
// and no bit changes; the tokens are the reference's.
func TestWindow(t *testing.T) {
	data := filepath.Join(sharedDir(t), "data")
	g := goldenModel{name: "mistral-swa32", folder: filepath.Join(data, "models", "mistral-swa32"),
		file: filepath.Join(data, "golden", "variants_mistral-swa32.json")}
	b := openWindowBench(t, g)
	cases := append(g.cases(t), goldenCase{Prompt: "450 tokens",
		PromptIDs: longPrompt(b.vocabulary)})
	for i, c := range cases {
		id := fmt.Sprint("case", i)
		b.whole.generate(ask(id, c.PromptIDs, outputs))
		want := samples(t, b.whole.log.String())[id]
		got := map[string][]sampled{"in a tight pool": b.tight(c, id)}
		b.crowd.crowded(ask(id, c.PromptIDs, outputs), b.vocabulary)
		got["beside 8 others"] = samples(t, b.crowd.log.String())[id]
		got["after a shorter one"] = b.after(c, id)
		got["two processes"] = b.apart(c, id)
		for k, token := range c.GreedyIDs {
			if want[k].Token != token {
				t.Errorf("%q: output token %d is %d, want %d", c.Prompt, k, want[k].Token, token)
			}
		}
		for name, s := range got {
			if len(s) != outputs || !slices.Equal(s, want) {
				t.Errorf("%q: %s differs from the whole prompt in pages of 16:\n%v\n%v",
					c.Prompt, name, s, want)
			}
		}
	}
	rest(t, b.prefill, b.decode)
}

// openWindowBench opens engines with pages of 4, but for whole.
func openWindowBench(t *testing.T, g goldenModel) *workbench {
	t.Helper()
	cfg, _ := config.Load("")
	cfg.Model.Path = g.folder
	m, err := loadModel(cfg, quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.close(context.Background(), slog.New(slog.DiscardHandler)) })
	about := m.model.Config()
	if !about.UniformWindow || about.Window != 32 {
		t.Fatalf("the model's window is %d, in all layers: %t", about.Window, about.UniformWindow)
	}
	b := &workbench{t: t, vocabulary: about.Vocabulary, window: about.Window, page: 4}
	const pages = "[kv_cache]\npage_size = 4\n"
	b.whole = startLone(t, m, "[kv_cache]\nprefix_cache = false\n")
	b.seven = startLone(t, m, pages+fmt.Sprintf("memory = \"%dKiB\"\n",
		tightPages*4*g.positionBytes(t)>>10)+"[scheduler]\nchunk_max = 7\n")
	b.crowd = startLone(t, m, pages)
	b.cached = startLone(t, m, pages)
	common := fmt.Sprintf("[telemetry]\nlog_level = \"debug\"\n[model]\npath = %q\n", g.folder)
	b.prefill = serveNode(t, "[node]\nrole = \"prefill\"\n"+pages+common)
	b.decode = serveNode(t, "[node]\nrole = \"decode\"\n"+pages+common)
	return b
}

// tightPages could not hold a quarter of the longest prompt.
const tightPages = 26

// tight computes a prompt in chunks of 7 in a small pool and watches what it holds.
func (b *workbench) tight(c goldenCase, id string) []sampled {
	t, e := b.t, b.seven.run.engine
	if pages := b.seven.run.stores[0].Pages(); pages != tightPages {
		t.Fatalf("the pool has %d pages, want %d", pages, tightPages)
	}
	stream, err := e.Generate(t.Context(), ask(id, c.PromptIDs, outputs))
	if err != nil {
		t.Fatal(err)
	}
	most := (b.window-1+7+b.page-2)/b.page + 1 // From the first slot in a page to the last.
	for {
		stats, leaked, err := e.Stats(t.Context())
		if err != nil || stats.Held > most || leaked != 0 {
			t.Fatalf("%q: %d pages held, at most %d may be; %d leaked: %v", c.Prompt, stats.Held,
				most, leaked, err)
		}
		update, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if update.Finish != "" {
			return samples(t, b.seven.log.String())[id]
		}
	}
}

// after computes a prompt of which the prefix cache holds a start that ends in sight.
func (b *workbench) after(c goldenCase, id string) []sampled {
	n := len(c.PromptIDs)
	start := max(1, n-b.window/2)
	b.cached.generate(ask(id+" start", c.PromptIDs[:start], 1))
	report := b.cached.generate(ask(id, c.PromptIDs, outputs))
	if start > 1 && report.Cached < start-1 {
		b.t.Errorf("%q: %d tokens were found, %d had been computed", c.Prompt, report.Cached, start)
	}
	return samples(b.t, b.cached.log.String())[id]
}
