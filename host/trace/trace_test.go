package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestScenario60AHundredThousandRequests: the ring keeps the latest events in order and no more,
// and an event costs no allocation, however many came before.
func TestScenario60AHundredThousandRequests(t *testing.T) {
	const size, requests = 1000, 100_000
	r := NewRing(size)
	begun := time.Unix(1_700_000_000, 0)
	ids := make([]string, requests)
	for i := range ids {
		ids[i] = fmt.Sprint("req_", i)
	}
	add := func(i int) {
		r.Add(Event{Name: "queue", Track: ids[i%requests], At: begun.Add(time.Duration(i)),
			Took: 1})
	}
	for i := range requests {
		add(i)
		if i == size/2 {
			if held, total := r.Events(); len(held) != size/2+1 || total != size/2+1 {
				t.Fatalf("%d held of %d", len(held), total)
			}
		}
	}
	held, total := r.Events()
	if len(held) != size || total != requests {
		t.Fatalf("%d held of %d", len(held), total)
	}
	for i, e := range held {
		if want := ids[requests-size+i]; e.Track != want {
			t.Fatalf("event %d is of %s, want %s", i, e.Track, want)
		}
	}
	n := requests
	if cost := testing.AllocsPerRun(1000, func() { add(n); n++ }); cost != 0 {
		t.Errorf("an event allocates %v times", cost)
	}
	var none *Ring
	none.Add(Event{Name: "x"})
	if held, _ := none.Events(); held != nil || NewRing(0) != nil {
		t.Error("a ring that is none keeps something")
	}
}

// TestChromeDocument reads the timeline as its readers do: every event on the thread that its
// request names, times in microseconds, in order.
func TestChromeDocument(t *testing.T) {
	at := time.Unix(1_700_000_000, 123_456_789)
	events := []Event{
		{Name: "decode", Track: "b", At: at.Add(time.Millisecond), Took: 2500 * time.Nanosecond,
			Tokens: 7},
		{Name: "queue", Track: "a \"quoted\"", At: at, Took: time.Millisecond},
		{Name: "step", At: at.Add(2 * time.Millisecond), Took: time.Second},
		{Name: "finished", Track: "b", At: at.Add(3 * time.Millisecond), Note: "stop"},
	}
	var text bytes.Buffer
	if err := WriteChrome(&text, "p0 · prefill", events); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		TraceEvents []struct {
			Name, Ph, S string
			Ts, Dur     float64
			PID, TID    int
			Args        map[string]any
		}
	}
	if err := json.Unmarshal(text.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	threads, last := map[int]string{}, 0.0
	var said []string
	for _, e := range doc.TraceEvents {
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				threads[e.TID] = e.Args["name"].(string)
			} else if e.Args["name"] != "p0 · prefill" {
				t.Errorf("%+v", e)
			}
			continue
		case "X", "i":
		default:
			t.Errorf("phase %q", e.Ph)
		}
		if e.Ts < last {
			t.Errorf("%s comes before what was before it", e.Name)
		}
		last = e.Ts
		said = append(said, fmt.Sprintf("%s/%s %s %.3f %.3f %v", threads[e.TID], e.Name, e.Ph,
			e.Ts-1_700_000_000_123_456, e.Dur, e.Args))
	}
	want := `a "quoted"/queue X 0.789 1000.000 map[]
b/decode X 1000.789 2.500 map[tokens:7]
loop/step X 2000.789 1000000.000 map[]
b/finished i 3000.789 0.000 map[note:stop]`
	for i, line := range strings.Split(want, "\n") {
		// A float64 holds microseconds since 1970 to about a quarter of one.
		if i >= len(said) || !nearly(said[i], line) {
			t.Errorf("line %d: %q, want %q", i, said, line)
		}
	}
}

// nearly compares two lines; numbers may differ by a microsecond.
func nearly(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		var p, q float64
		_, errA := fmt.Sscan(x[i], &p)
		_, errB := fmt.Sscan(y[i], &q)
		if errA == nil && errB == nil && p-q < 1 && q-p < 1 {
			continue
		}
		if x[i] != y[i] {
			return false
		}
	}
	return true
}

func TestTraceparent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c, ok := Parse(good)
	if !ok || c.String() != good || !c.Sampled {
		t.Errorf("%v %v", c, ok)
	}
	c, ok = Parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-what comes later")
	if !ok || c.Sampled || c.String() != good[:53]+"00" {
		t.Errorf("a later version: %v %v", c, ok)
	}
	for _, bad := range []string{
		"", "00", good[:54], good + "-x", strings.ToUpper(good), "ff" + good[2:],
		strings.Replace(good, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1),
		strings.Replace(good, "00f067aa0ba902b7", strings.Repeat("0", 16), 1),
		strings.Replace(good, "4bf", "4bg", 1), strings.Replace(good, "-", "_", 1),
		"0g" + good[2:], good[:53] + "0 ", "cc" + good[2:] + "x",
	} {
		if c, ok := Parse(bad); ok {
			t.Errorf("%q is taken for %v", bad, c)
		}
	}
}

// TestTraceparentsRoundTrip: what is written is read, for any place.
func TestTraceparentsRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 1000 {
		c := Context{Sampled: r.IntN(2) == 0}
		for i := range c.Trace {
			c.Trace[i] = byte(r.IntN(256))
		}
		for i := range c.Span {
			c.Span[i] = byte(1 + r.IntN(255))
		}
		if got, ok := Parse(c.String()); !ok || got != c {
			t.Fatalf("%v became %v", c, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := Parse(text)
		if !ok {
			return
		}
		if again, ok := Parse(c.String()); !ok || again != c {
			t.Errorf("%q became %v, then %v", text, c, again)
		}
	})
}
