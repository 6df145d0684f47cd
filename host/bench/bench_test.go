package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvrelay/engine/host/batch"
)

func TestQuantile(t *testing.T) {
	samples := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4, 1.0 / 3: 2} {
		if got := Quantile(samples, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if Quantile(nil, 0.5) != 0 || samples[0] != 4 {
		t.Error("no samples, or the samples were reordered")
	}
}

// counted is a model that takes a millisecond a row and notes what it was asked.
type counted struct {
	now   time.Duration
	rows  []int
	wrong error
	done  map[int32]int // by first page: positions so far
}

func (c *counted) Run(b *batch.Batch) ([][]float32, error) {
	total := 0
	var out [][]float32
	for _, item := range b.Items {
		page := int32(item.Pages[0])
		if c.done[page] != item.Start && c.wrong == nil {
			c.wrong = fmt.Errorf("sequence of page %d at %d, want %d",
				page, item.Start, c.done[page])
		}
		c.done[page] += len(item.Tokens)
		total += len(item.Tokens)
		if item.Logits > 0 {
			out = append(out, []float32{0, 1, 0})
		}
	}
	c.rows = append(c.rows, total)
	c.now += time.Duration(total) * time.Millisecond
	return out, nil
}

func TestModelCases(t *testing.T) {
	for _, c := range []struct {
		Case
		label string
		rows  string
	}{
		{Case{Prompt: 70}, "pp70", "[32 32 6]"},
		{Case{Generate: 3}, "tg3", "[1 1 1]"},
		{Case{Generate: 2, Batch: 8}, "tg2 x8", "[8 8]"},
		{Case{Generate: 2, Depth: 40}, "tg2 @ d40", "[32 8 1 1]"},
		{Case{Prompt: 20, Depth: 10, Batch: 2}, "pp20 x2 @ d10", "[10 10 20 20]"},
	} {
		m := &counted{done: map[int32]int{}}
		s := &Subject{Model: m, Vocabulary: 3, PageSize: 16, MaxRows: 32,
			Clock: func() time.Duration { return m.now }}
		rate, err := s.Once(c.Case, 7)
		if err != nil || m.wrong != nil || math.Abs(rate-1000) > 1e-6 {
			t.Errorf("%v: %v tokens a second, %v %v", c.Case, rate, err, m.wrong)
		}
		if got := fmt.Sprint(m.rows); got != c.rows || c.String() != c.label {
			t.Errorf("%q: rows %s, want %s", c.String(), got, c.rows)
		}
		if n := s.Pages([]Case{c.Case}); n < len(m.done) {
			t.Errorf("%v: %d pages", c.Case, n)
		}
	}
}

// quick is a server whose answers take a second to the first token and 100 ms to each other one.
type quick struct {
	mu      sync.Mutex
	running int
	most    int
	asks    []Ask
}

func (q *quick) Do(_ context.Context, a Ask) Answer {
	q.mu.Lock()
	q.running++
	q.most = max(q.most, q.running)
	q.asks = append(q.asks, a)
	n := len(q.asks)
	q.mu.Unlock()
	time.Sleep(time.Second) // virtual
	out := Answer{First: time.Second, In: len(a.Prompt), Out: a.Out, HungUp: a.HangUp > 0}
	for range a.Out - 1 {
		out.Gaps = append(out.Gaps, 100*time.Millisecond)
	}
	time.Sleep(time.Duration(a.Out-1) * 100 * time.Millisecond)
	out.Took = time.Second + time.Duration(a.Out-1)*100*time.Millisecond
	q.mu.Lock()
	q.running--
	q.mu.Unlock()
	if n == 3 {
		out.Err = errors.New("busy")
	}
	return out
}

func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quick{}
		d := Driver{Server: server, Tokens: []int32{5, 6, 7, 8, 9},
			Targets: Targets{TTFT: time.Second}}
		l, err := d.Run(t.Context(), Plan{Streams: 4, Requests: 20, In: 40, Out: 11, Share: 0.5,
			Seed: 3})
		if err != nil || l.Requests != 20 || l.Failed != 1 || l.Succeeded != 19 || l.Good != 19 {
			t.Fatalf("%+v %v", l, err)
		}
		if server.most != 4 || l.Elapsed != 10*time.Second {
			t.Errorf("%d at once, %v", server.most, l.Elapsed)
		}
		if l.OutTokens != 19*11 || Mean(l.TPOT) != 100 || Quantile(l.ITL, 0.99) != 100 {
			t.Errorf("%d tokens, %v a token", l.OutTokens, Mean(l.TPOT))
		}
		first := server.asks[0].Prompt
		for _, a := range server.asks[1:] {
			if !slices.Equal(a.Prompt[:20], first[:20]) || slices.Equal(a.Prompt, first) {
				t.Errorf("prompts %v and %v share their first half alone", first, a.Prompt)
			}
		}
		sum := 0.0
		for _, x := range l.Second {
			sum += x
		}
		if math.Abs(sum-float64(l.OutTokens)) > 1e-6 {
			t.Errorf("%v tokens by second, %d in all", sum, l.OutTokens)
		}
	})
}

// TestOpenLoop: requests begin at their own times, however long the others take, and as many as the
// rate says; a trace's begin when it says.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &quick{}
		d := Driver{Server: server, Tokens: []int32{5, 6}}
		l, err := d.Run(t.Context(), Plan{Rate: 10, Duration: 100 * time.Second, In: 4, Out: 50,
			Cancel: 0.25, Seed: 9})
		if err != nil || l.Requests < 880 || l.Requests > 1120 { // within four deviations
			t.Fatalf("%d requests in 100 s, %v", l.Requests, err)
		}
		if l.HungUp < 180 || l.HungUp > 320 || server.most < 30 || l.Late > 0 {
			t.Errorf("%d hung up, %d at once, %d late", l.HungUp, server.most, l.Late)
		}
		text := `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,2]}
{"timestamp":4000,"input_length":900,"output_length":3,"hash_ids":[1,3]}
`
		trace, err := ReadTrace(strings.NewReader(text), 2, 700)
		if err != nil {
			t.Fatal(err)
		}
		server.asks = nil
		if l, err = d.Run(t.Context(), Plan{Trace: trace}); err != nil || l.Requests != 2 {
			t.Fatal(l, err)
		}
		a, b := server.asks[0].Prompt, server.asks[1].Prompt
		if len(a) != 600 || len(b) != 697 || !slices.Equal(a[:512], b[:512]) ||
			l.Elapsed != 2*time.Second+1200*time.Millisecond {
			t.Errorf("prompts of %d and %d, %v", len(a), len(b), l.Elapsed)
		}
	})
	for want, text := range map[string]string{
		"no request": "\n", "line 1 of": "{", "0 tokens in": `{"input_length":0,"output_length":1}`,
		"earlier": "{\"timestamp\":2,\"input_length\":1,\"output_length\":1}\n" +
			"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}",
	} {
		if _, err := ReadTrace(strings.NewReader(text), 1, 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestClient talks to a server of a few lines.
func TestClient(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("/tokenize", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"count":4,"tokens":[9,3,3,5]}`)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# x\nengine_requests_running{a=\"b\"} 2\nengine_requests_waiting 1\n")
	})
	mux.HandleFunc("/v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt []int32 `json:"prompt"`
			Max    int     `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Header.Get("Authorization") !=
			"Bearer k" {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		for range q.Max {
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,"+
			"\"completion_tokens\":%d}}\n\n", len(q.Prompt), q.Max)
		if q.Max != 3 {
			fmt.Fprint(w, "data: [DONE]\n\n")
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := &Client{Base: server.URL + "/", Key: "k", HTTP: server.Client()}
	tokens, err := c.Discover(t.Context())
	if err != nil || c.Model != "m" || fmt.Sprint(tokens) != "[3 5 9]" {
		t.Fatal(tokens, c.Model, err)
	}
	for _, end := range []string{"", "/v1", "/v1/", "//v1//"} {
		c := &Client{Base: server.URL + end, HTTP: server.Client()}
		if _, err := c.Discover(t.Context()); err != nil || c.Model != "m" {
			t.Errorf("a base that ends in %q: model %q, %v", end, c.Model, err)
		}
		if _, ok := c.Busy(t.Context()); !ok {
			t.Errorf("a base that ends in %q has no metrics", end)
		}
	}
	a := c.Do(t.Context(), Ask{Prompt: tokens, Out: 4})
	if a.Err != nil || a.In != 3 || a.Out != 4 || len(a.Gaps) != 3 || a.First == 0 {
		t.Errorf("%+v", a)
	}
	if a := c.Do(t.Context(), Ask{Prompt: tokens, Out: 9, HangUp: 2}); !a.HungUp || a.Err != nil {
		t.Errorf("%+v", a)
	}
	if a := c.Do(t.Context(), Ask{Out: 3}); a.Err == nil {
		t.Error("a stream without its end is no success")
	}
	if a := c.Do(t.Context(), Ask{}); a.Err == nil {
		t.Error("a stream without a piece is no success")
	}
	if busy, ok := c.Busy(t.Context()); !ok || busy != 3 {
		t.Error(busy, ok)
	}
	c.Key = ""
	a = c.Do(t.Context(), Ask{Out: 1})
	if a.Err == nil || !strings.Contains(a.Err.Error(), "418") {
		t.Error(a.Err)
	}
}

func TestResultAndCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	before := &Result{Kind: "model", Subject: "m<", Rows: []Row{
		Case{Prompt: 512}.Row([]float64{100, 90, 110}), {Name: "TTFT", Unit: "ms", Value: 10,
			Lower: true}, {Name: "gone", Value: 1}}}
	before.Load = &Load{TTFT: []float64{1, 2, 3}, ITL: []float64{4, 4}, Second: []float64{3, 1},
		Elapsed: time.Second}
	if err := before.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := Read(path)
	if err != nil || read.Rows[0].Value != 100 || read.Rows[0].Spread != 10 {
		t.Fatal(read, err)
	}
	after := &Result{Rows: []Row{{Name: "pp512", Unit: "tok/s", Value: 80},
		{Name: "TTFT", Unit: "ms", Value: 5, Lower: true}}}
	list := Compare(read, after)
	if len(list) != 2 || list[0].Ratio != 0.8 || list[1].Ratio != 2 {
		t.Error(list)
	}
	if worst, ok := Worst(list); !ok || worst.Name != "pp512" {
		t.Error(worst)
	}
	var out bytes.Buffer
	if err := WriteChanges(&out, list); err != nil || !strings.Contains(out.String(), "worse") ||
		!strings.Contains(out.String(), "± 10.00") {
		t.Error(out.String(), err)
	}
	after.Rows[0].Spread = 10
	out.Reset()
	if err := WriteChanges(&out, Compare(read, after)); err != nil ||
		!strings.Contains(out.String(), "0.800  within the spread") {
		t.Error(out.String(), err)
	}
	out.Reset()
	if err := read.WritePage(&out); err != nil || strings.Count(out.String(), "<polyline") != 3 ||
		!strings.Contains(out.String(), "m&lt;") {
		t.Error(out.String(), err)
	}
	out.Reset()
	if err := read.Load.WriteTable(&out); err != nil ||
		!strings.Contains(out.String(), "Median TTFT (ms):                        2.00") {
		t.Error(out.String(), err)
	}
}

// paced is a model whose steps take no more than a millisecond, whatever they are asked.
type paced struct {
	now  time.Duration
	past int // most position computed
}

func (q *paced) Run(b *batch.Batch) (rows [][]float32, err error) {
	q.now += time.Millisecond
	for _, item := range b.Items {
		q.past = max(q.past, item.Start+len(item.Tokens))
		rows = append(rows, []float32{1, 2, 3})
	}
	return rows, nil
}

// TestLeast: what takes too little time is repeated in the same place, and the rate is that of one.
func TestLeast(t *testing.T) {
	for _, c := range []Case{{Prompt: 16, Depth: 5}, {Generate: 2, Batch: 3, Depth: 5}} {
		m := &paced{}
		s := &Subject{Model: m, Vocabulary: 3, PageSize: 16, MaxRows: 32, Least: LeastCase,
			Clock: func() time.Duration { return m.now }}
		rate, err := s.Once(c, 1)
		want := map[bool]float64{true: 16000, false: 3000}[c.Prompt > 0]
		if err != nil || math.Abs(rate-want) > 1e-6 || m.now < LeastCase {
			t.Errorf("%v: %v tokens a second after %v: %v", c, rate, m.now, err)
		}
		if m.past != c.length() {
			t.Errorf("%v: %d positions", c, m.past)
		}
	}
}

// TestSteady: the rate counts from the last first token to the first last one.
func TestSteady(t *testing.T) {
	ms := func(list ...int) (gaps []time.Duration) {
		for _, n := range list {
			gaps = append(gaps, time.Duration(n)*time.Millisecond)
		}
		return gaps
	}
	early := Answer{First: 100 * time.Millisecond, Gaps: ms(100, 100, 100), Out: 4}
	late := Answer{Began: 50 * time.Millisecond, First: 200 * time.Millisecond,
		Gaps: ms(100, 100, 100), Out: 8} // two tokens a piece
	// Between 250 and 400 ms come pieces at 300 and 400, and one of two tokens at 350.
	if got, window := steady([]Answer{early, late}); window != 150*time.Millisecond ||
		math.Abs(got-4/0.15) > 1e-9 {
		t.Errorf("%v tokens a second", got)
	}
	failed, apart := late, late
	failed.Err, apart.Began = errors.New("gone"), time.Second
	for name, list := range map[string][]Answer{"none": nil, "failed": {early, failed},
		"one after the other": {early, apart}} {
		if got, _ := steady(list); got != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, p := range []Plan{{Streams: 2}, {Streams: 2, Requests: 3}, {Rate: 1, Requests: 1}} {
		if p.atOnce() {
			t.Errorf("%+v begins all at once", p)
		}
	}
}

// TestWhole: of requests one after the other, the rate counts from the first end to the first one
// after the last beginning.
func TestWhole(t *testing.T) {
	at := func(began, out int) Answer {
		ms := time.Millisecond
		return Answer{Began: time.Duration(began) * ms, First: 100 * ms,
			Gaps: []time.Duration{100 * ms, 100 * ms}, Out: out}
	}
	// Two streams; ends at 300, 350, 600, 650, 900, 950 ms. The last begins at 650, so that 300 to
	// 650 counts: of the first of each stream the piece at 350 alone, of the second all six of two
	// tokens each; nothing of the third before 700.
	list := []Answer{at(0, 3), at(50, 3), at(300, 6), at(350, 6), at(600, 3), at(650, 3)}
	got, window := whole(list)
	if window != 350*time.Millisecond || math.Abs(got-13/0.35) > 1e-9 {
		t.Errorf("%v tokens a second in %v", got, window)
	}
	list[3].Err = errors.New("gone")
	if got, _ := whole(list); got != 0 {
		t.Errorf("one failed: %v", got)
	}
	if got, _ := whole(nil); got != 0 {
		t.Errorf("of none: %v", got)
	}
	p := Plan{Streams: 2, Requests: LeastCycles * 2}
	if !p.cycles() || p.atOnce() {
		t.Errorf("%+v", p)
	}
	if p.Requests--; p.cycles() {
		t.Errorf("%+v", p)
	}
}

func TestStageShares(t *testing.T) {
	series := func(stage string) string {
		return `engine_step_seconds_sum{model="m",role="all",stage="` + stage + `"}`
	}
	before := map[string]float64{series("run"): 5, series("plan"): 1}
	after := map[string]float64{series("run"): 8, series("plan"): 1.5, series("commit"): 0.5,
		series("other"): 9}
	got := StageShares(before, after)
	if len(got) != 5 || got["run"] != 0.75 || got["plan"] != 0.125 || got["commit"] != 0.125 {
		t.Errorf("%v", got)
	}
	rows := ServingRows([]Serving{{Bare: 10, Served: 8, Generator: 0.02, Stages: got},
		{Bare: 10, Served: 9, Generator: 0.04, Stages: got}})
	for i, want := range []float64{10, 8.5, 85, 3, 0, 12.5, 75, 12.5, 0} {
		if math.Abs(rows[i].Value-want) > 1e-9 {
			t.Errorf("%+v, want %v", rows[i], want)
		}
	}
}
