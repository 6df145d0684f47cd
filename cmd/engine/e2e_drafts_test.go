package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
)

// threeModels is [model] of a main model and two drafts, one of them with a window, and the golden
// file of the main one.
func threeModels(t *testing.T) (table string, g goldenModel) {
	t.Helper()
	folder := func(name string) string {
		return filepath.Join(sharedDir(t), "data", "models", name)
	}
	g = goldenModel{name: "stories260k", folder: folder("stories260k/hf-f32"),
		file: filepath.Join(sharedDir(t), "data", "golden", "stories260K_hf-f32.json")}
	return fmt.Sprintf("[model]\npath = %q\nadditional = [%q, %q]\n", g.folder,
		folder("mistral-swa32"), folder("stories-qwen3")), g
}

// TestScenario19OnTheWire: with two drafts the main model's tokens are the golden ones, on one
// instance and over a hand-off, whose metadata has a list of slots for each model.
func TestScenario19OnTheWire(t *testing.T) {
	table, g := threeModels(t)
	c := startCluster(t, clusterOptions{prefill: table, decode: table})
	for i, g := range g.cases(t) {
		ask := greedy.with(fields{"prompt": g.PromptIDs, "return_token_ids": true})
		delete(ask, "model")
		for _, url := range []string{c.router.api, c.prefill.api} {
			got := post(t, url+"/v1/completions", ask).completion(t).Choices[0]
			if !slices.Equal(got.TokenIDs, g.GreedyIDs) {
				t.Errorf("%q: %v, want %v", g.Prompt, got.TokenIDs, g.GreedyIDs)
			}
		}
		call := &caller{t: t, prefill: c.prefill, decode: c.decode, body: fields{
			"prompt": append(slices.Clone(g.PromptIDs), 5, 6, 7), "user": fmt.Sprint("u", i),
			"max_tokens": 12, "temperature": 0, "ignore_eos": true, "return_token_ids": true}}
		reserved := call.prepare(-1)
		letter, _ := readLetter(t, reserved.KVAppendMetadata)
		if len(letter.Models) != 3 {
			t.Fatalf("lists of slots for %d models, want 3", len(letter.Models))
		}
		end := len(g.PromptIDs) + 2
		for m, list := range letter.Models {
			if slots(t, list) != end-reserved.PrefixMatchedLength {
				t.Errorf("model %d: slots %v for [%d, %d)", m, list, reserved.PrefixMatchedLength,
					end)
			}
		}
		if r := call.send(reserved.KVAppendMetadata, reserved.PrefixMatchedLength, end); r.status !=
			200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		call.answers(end)
	}
	c.rest(t)
	c.stop()
}

// TestDraftsAreDelivered compares what the receiver has of every model after a hand-off with what
// that model computes of the prompt by itself, byte for byte.
func TestDraftsAreDelivered(t *testing.T) {
	table, _ := threeModels(t)
	file := filepath.Join(t.TempDir(), "engine.toml")
	text := table + "[scheduler]\nchunk_max = 37\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Load(file)
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	p, err := openPair(t.Context(), cfg, quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(context.Background(), slog.New(slog.DiscardHandler))
	prompt := longPrompt(p.model.model.Config().Vocabulary)[:200]
	ask := generation.Request{ID: "a", Prompt: prompt, MaxTokens: 3}
	reserved, err := p.decode.engine.PrepareReceive(t.Context(), ask, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.prefill.engine.RemoteSend(t.Context(), ask, generation.Send{
		End: reserved.End, Metadata: reserved.Metadata}); err != nil {
		t.Fatal(err)
	}
	letter, _ := readLetter(t, reserved.Metadata)
	main, drafts, err := p.model.share()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range append([]*model.Model{main}, drafts...) {
		sent := sameMemory(t, m, prompt[:199], p.decode.stores[i], letter.Models[i])
		if window := m.Config().Window; window > 0 && sent >= 199 || window == 0 && sent != 199 {
			t.Errorf("model %d with a window of %d: %d positions were sent", i, window, sent)
		}
	}
	stream, err := p.decode.engine.StartGenerate(t.Context(), ask, reserved.End)
	if err != nil {
		t.Fatal(err)
	}
	for finish := generation.Finish(""); finish == ""; {
		update, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		finish = update.Finish
	}
}

// sameMemory computes a prompt on m alone and compares the slots of a metadata list with that. It
// returns how many positions have slots.
func sameMemory(t *testing.T, m *model.Model, prompt []int32, at *model.KVStore, list []int) int {
	t.Helper()
	own, err := m.NewKV(20, at.PageSize())
	if err != nil {
		t.Fatal(err)
	}
	var pages []kvcache.PageID
	for page := range kvcache.PageID(20) {
		pages = append(pages, page)
	}
	if _, err := m.Run(&batch.Batch{Items: []batch.Item{{Tokens: prompt, Pages: pages}}}); err !=
		nil {
		t.Fatal(err)
	}
	slot := func(s *model.KVStore, layer, flat int) []byte {
		data := make([]byte, s.TokenBytes())
		r := kvcache.SlotRange{Page: kvcache.PageID(flat / s.PageSize()),
			First: flat % s.PageSize(), Count: 1}
		if err := s.ReadPage(layer, r, data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	position, sent := 0, 0
	for i := range list[0] {
		first, count := list[1+2*i], list[2+2*i]
		for k := range count {
			for layer := 0; first >= 0 && layer < at.Layers(); layer++ {
				if !bytes.Equal(slot(at, layer, first+k), slot(own, layer, position)) {
					t.Fatalf("layer %d of position %d is not what the model computes", layer,
						position)
				}
			}
			if first >= 0 {
				sent++
			}
			position++
		}
	}
	return sent
}

// TestDraftsMustFit: instances with different drafts refuse each other, and a model that cannot
// run beside the main one is refused at once.
func TestDraftsMustFit(t *testing.T) {
	table, g := threeModels(t)
	alone := fmt.Sprintf("[model]\npath = %q\n", g.folder)
	other := fmt.Sprintf("[model]\npath = %q\nadditional = [%q, %q]\n", g.folder,
		filepath.Join(sharedDir(t), "data", "models", "mistral-swa32"), g.folder)
	prefill := serveNode(t, "[node]\nrole = \"prefill\"\n"+table)
	for _, decode := range []struct{ table, code, words string }{
		{alone, "invalid_metadata", "1 lists of slots for 3 models"},
		{other, "incompatible_instance", "model 2 model: here"},
	} {
		d := serveNode(t, "[node]\nrole = \"decode\"\n"+decode.table)
		call := &caller{t: t, prefill: prefill, decode: d, body: fields{
			"prompt": []int32{5, 6, 7, 8, 9}, "user": "u", "max_tokens": 12, "temperature": 0,
			"ignore_eos": true, "return_token_ids": true}}
		reserved := call.prepare(-1)
		r := call.send(reserved.KVAppendMetadata, 0, 4)
		code, message := r.failure(t)
		if code != decode.code || !strings.Contains(message, decode.words) {
			t.Errorf("%d %s %q", r.status, code, message)
		}
		call.answers(4)
		rest(t, prefill, d)
		d.stop()
	}
	prefill.stop()

	for additional, words := range map[string]string{
		`[""]`:       "its vocabulary has 1024 tokens, that of model.path 512",
		`["nobody"]`: "nobody",
	} {
		file := filepath.Join(t.TempDir(), "engine.toml")
		text := fmt.Sprintf("[model]\npath = %q\nadditional = %s\n", g.folder, additional)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := invoke(t, "", "config", "check", "-c", file)
		if got.code != exitConfig || !strings.Contains(got.err, "error[E417]") ||
			!strings.Contains(got.err, words) {
			t.Errorf("%s: exit %d\n%s", additional, got.code, got.err)
		}
	}
}

// TestPoolsForTheWidestDraft: where the main model slides and a draft does not, pools hold a whole
// request of the draft, and one of full length is answered.
func TestPoolsForTheWidestDraft(t *testing.T) {
	folder := func(name string) string {
		return filepath.Join(sharedDir(t), "data", "models", name)
	}
	table := fmt.Sprintf("[model]\npath = %q\nmax_model_len = 400\n", folder("mistral-swa32"))
	const tight = "[scheduler]\nmax_num_seqs = 1\ntoken_budget = 64\n"
	alone := serveNode(t, "[node]\nrole = \"all\"\n"+table+tight)
	beside := serveNode(t, "[node]\nrole = \"all\"\n"+table+fmt.Sprintf("additional = [%q]\n",
		folder("stories-qwen3"))+tight)
	ask := fields{"prompt": longPrompt(512)[:380], "max_tokens": 20, "temperature": 0,
		"ignore_eos": true, "return_token_ids": true}
	want := post(t, alone.api+"/v1/completions", ask).completion(t).Choices[0].TokenIDs
	got := post(t, beside.api+"/v1/completions", ask).completion(t).Choices[0].TokenIDs
	if len(want) != 20 || !slices.Equal(got, want) {
		t.Errorf("%v, without a draft %v", got, want)
	}
	pages := func(n *node) float64 { return n.metric("engine_kv_page_capacity") }
	if pages(beside) < 2*26 || pages(alone) >= 26 {
		t.Errorf("%v pages beside a draft, %v without", pages(beside), pages(alone))
	}
	rest(t, alone, beside)
	alone.stop()
	beside.stop()
}
