package scheduler

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// script runs commands against one scheduler. Sequences have names, prompts are texts that share
// tokens only where they say so. Lines starting with > are the expected output.
type script struct {
	t *testing.T
	o Options
	s *Scheduler
	m *fakeModel
	// drafts are the models beside it.
	drafts []*fakeModel
	texts  map[string][]int32
	items  map[string][]batch.Embedding // Of the texts that have vectors.
	ids    map[string]SequenceID
	names  map[SequenceID]string
	fresh  int32
	peak   int // Most pages held at once.
	now    time.Duration
}

// TestScenario runs testdata/*.txt: a line "== NAME" begins a scenario on an empty scheduler.
func TestScenario(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { runFile(t, file) })
	}
}

func runFile(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for k, part := range strings.Split(string(data), "\n== ") {
		title, body, _ := strings.Cut(part, "\n")
		if k > 0 {
			fmt.Fprintf(&out, "\n== %s\n", title)
		} else {
			fmt.Fprintf(&out, "%s\n", title)
		}
		t.Run(strings.TrimPrefix(title, "== "), func(t *testing.T) {
			got := runScenario(t, body)
			if !*update && got != body {
				t.Errorf("got\n%s\nwant\n%s", got, body)
			}
			out.WriteString(got)
		})
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func runScenario(t *testing.T, body string) string {
	sc := &script{
		t: t, texts: map[string][]int32{}, items: map[string][]batch.Embedding{},
		ids: map[string]SequenceID{}, names: map[SequenceID]string{},
	}
	sc.options(nil)
	var out []string
	for _, line := range strings.Split(body, "\n") {
		if strings.HasPrefix(line, "> ") {
			continue
		}
		out = append(out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if got := sc.do(words[0], words[1:]); got != "" {
			for _, l := range strings.Split(got, "\n") {
				out = append(out, "> "+l)
			}
		}
		if err := sc.s.Check(); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
	}
	return strings.Join(out, "\n")
}

// arguments splits "name key=value flag" into words and numbers.
func arguments(words []string) (plain []string, keys map[string]int) {
	keys = map[string]int{}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				panic(w)
			}
			keys[key] = n
			continue
		}
		plain = append(plain, w)
	}
	return plain, keys
}

// options starts over with a scheduler of its own: P=16 C=128 S=4 pages=257 length=4096.
func (sc *script) options(words []string) string {
	_, k := arguments(words)
	or := func(key string, otherwise int) int {
		if n, ok := k[key]; ok {
			return n
		}
		return otherwise
	}
	sc.o = Options{
		PageSize: or("P", 16), Pages: or("pages", 257), MaxModelLen: or("length", 4096),
		PrefixPages: or("prefix", -1), Role: 3, Window: or("W", 0), Sinks: or("sinks", 0),
		Limits: Limits{
			MaxSeqs: or("S", 4), TokenBudget: or("C", 128), ChunkMax: or("chunk", 0),
			ChunkAlign: or("align", 1), MaxAdmit: or("admit", 0), ReservePages: or("reserve", 0),
			MaxQueue: or("queue", 100), HardAge: time.Duration(or("age", 0)),
			MaxIdleSteps: or("idle", 0), MaxEmptySteps: or("empty", 0),
		},
	}
	if pages := or("D", 0); pages > 0 {
		sc.o.Drafts = []Memory{{Pages: pages, PrefixPages: -1, Window: or("DW", 0),
			Sinks: or("Dsinks", 0)}}
	}
	var err error
	if sc.s, err = New(sc.o, nil); err != nil {
		return err.Error()
	}
	sc.m, sc.drafts = newFakeModel(sc.o), nil
	for _, m := range sc.o.Drafts {
		sc.drafts = append(sc.drafts, newFakeDraft(sc.o.PageSize, m))
	}
	sc.peak = 0
	return ""
}

// text makes a prompt of n tokens, the first of them from another: "text b 120 a 99".
func (sc *script) text(words []string) string {
	n, _ := strconv.Atoi(words[1])
	var tokens []int32
	if len(words) > 3 {
		from, _ := strconv.Atoi(words[3])
		tokens = append(tokens, sc.texts[words[2]][:from]...)
	}
	for len(tokens) < n {
		sc.fresh++
		tokens = append(tokens, 1000+sc.fresh)
	}
	sc.texts[words[0]] = tokens
	return ""
}

// submit queues a request; a number in place of a text makes a new one of that length.
func (sc *script) submit(kind Kind, words []string) string {
	plain, k := arguments(words)
	name, text := plain[0], plain[1]
	if _, known := sc.texts[text]; !known {
		sc.text([]string{text + "/" + name, text})
		text += "/" + name
	}
	id := SequenceID(len(sc.names) + 1)
	r := Request{
		ID: id, Kind: kind, Prompt: sc.texts[text], MaxNew: 100, Begin: k["begin"], End: k["end"],
		Embeds: sc.items[text], Arrival: sc.now, Pinned: len(plain) > 2 && plain[2] == "pin",
	}
	if n, ok := k["max"]; ok {
		r.MaxNew = n
	}
	sc.names[id] = name
	if err := sc.s.Submit(r); err != nil {
		return err.Error()
	}
	sc.ids[name] = id
	return ""
}

// step runs one step and says what it did.
func (sc *script) step() string {
	sc.now++
	p := sc.s.Plan(sc.now, StepCosts{})
	sc.peak = max(sc.peak, sc.s.Stats().Held)
	var out []string
	for i, chunk := range p.Chunks {
		item := fmt.Sprintf("%s[%d,%d)", sc.names[chunk.ID], chunk.Start, chunk.End)
		for _, e := range p.Batch.Items[i].Embeds {
			item += fmt.Sprintf(" vectors[%d,%d)", e.Start, e.End())
		}
		if p.Batch.Items[i].Logits > 0 {
			item += "*"
		}
		out = append(out, item)
	}
	for _, c := range p.Batch.Copies {
		out = append(out, fmt.Sprintf("copy(%d)", c.Tokens))
	}
	for _, send := range p.Sends {
		item := fmt.Sprintf("send:%s", sc.names[send.ID])
		if send.CachedEnd > send.CachedStart {
			item += fmt.Sprintf(" cached[%d,%d)", send.CachedStart, send.CachedEnd)
		}
		if item += fmt.Sprintf(" fresh[%d,%d)", send.FreshStart, send.FreshEnd); send.Last {
			item += " last"
		}
		out = append(out, item)
	}
	for _, g := range p.Grants {
		out = append(out, sc.grant(&g))
	}
	for _, id := range p.Preempted {
		out = append(out, "preempted:"+sc.names[id])
	}
	for _, id := range p.Failed {
		out = append(out, "failed:"+sc.names[id])
	}
	if p.Decision.Fallback {
		out = append(out, "fallback")
	}
	rows, err := sc.m.run(&p.Batch)
	if err != nil {
		sc.t.Fatal(err)
	}
	for i, m := range sc.drafts {
		if _, err := m.run(&p.Drafts[i]); err != nil {
			sc.t.Fatal(err)
		}
		for k := range p.Drafts[i].Items {
			if draft := &p.Drafts[i].Items[k]; draft.Start != p.Batch.Items[k].Start ||
				!slices.Equal(draft.Tokens, p.Batch.Items[k].Tokens) || draft.Logits > 0 {
				sc.t.Errorf("the draft computes %+v, the main model %+v", draft, p.Batch.Items[k])
			}
		}
	}
	tokens := make([]int32, len(rows))
	for i := range tokens {
		sc.fresh++
		tokens[i] = 1000 + sc.fresh
	}
	sc.s.Commit(p, tokens, sc.now)
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "  ")
}

// grant says what a reservation got.
func (sc *script) grant(g *Grant) string {
	text := fmt.Sprintf("grant:%s matched=%d%s", sc.names[g.ID], g.Matched, slotsOf(g.Segments))
	info, _ := sc.s.Info(g.ID)
	text += fmt.Sprintf(" pages=%d", info.Pages)
	for _, segments := range g.Drafts {
		text += " draft:" + slotsOf(segments)
	}
	return text
}

// slotsOf counts the slots of [nseg, pos, len, ...].
func slotsOf(segments []int) string {
	sum, slid := 0, 0
	for i := range segments[0] {
		if segments[1+2*i] < 0 {
			slid += segments[2+2*i]
		} else {
			sum += segments[2+2*i]
		}
	}
	if slid > 0 {
		return fmt.Sprintf(" slots=%d slid=%d", sum, slid)
	}
	return fmt.Sprintf(" slots=%d", sum)
}

// held lists the pages of a sequence's table in a model that are there: "0 14-18".
func (sc *script) held(name string, model int) string {
	pages, out := sc.s.byID[sc.ids[name]].tables[model].pages, ""
	for k := 0; k < len(pages); k++ {
		first := k
		for k < len(pages) && pages[k] != kvcache.None {
			k++
		}
		switch {
		case k-first == 1:
			out += fmt.Sprintf(" %d", first)
		case k > first:
			out += fmt.Sprintf(" %d-%d", first, k-1)
		}
	}
	return strings.TrimSpace(out)
}

// pool says where the pages are.
func (sc *script) pool() string {
	st := sc.s.Stats()
	return fmt.Sprintf("free %d  held %d  evictable %d  pinned %d  quarantined %d",
		st.Free, st.Held, st.Evictable, st.Pinned, st.Quarantined)
}
