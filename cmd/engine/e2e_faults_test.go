package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// soon is how long a client may wait, after a process or a connection is lost, for its completion
// or a clear error: a few seconds, of which a busy machine makes many. What waits for a limit of
// the request itself takes longer.
const soon = 30 * time.Second

// proxy stands between a sender and a receiver and counts what passes, so that a test can act in
// the middle of a transfer.
type proxy struct {
	net.Listener
	target atomic.Pointer[string]
	passed atomic.Int64 // bytes towards the receiver
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.join(conn)
		}
	}()
	return p
}

// Write counts.
func (p *proxy) Write(b []byte) (int, error) {
	p.passed.Add(int64(len(b)))
	return len(b), nil
}

// join copies both ways until either side ends, which ends the other.
func (p *proxy) join(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(to, io.TeeReader(from, p)) // Its end is what matters, not why.
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(from, to)
		ended <- struct{}{}
	}()
	<-ended
}

// await waits until so many bytes have passed.
func (p *proxy) await(t *testing.T, n int64) {
	t.Helper()
	eventually(t, patience, func() error {
		if passed := p.passed.Load(); passed < n {
			return fmt.Errorf("%d bytes of %d have passed", passed, n)
		}
		return nil
	})
}

// slowCluster is a cluster whose transfers run through a proxy at a limited rate.
func slowCluster(t *testing.T, rate, decode string) (*cluster, *proxy) {
	t.Helper()
	p := startProxy(t)
	c := startCluster(t, clusterOptions{
		prefill: fmt.Sprintf("[transfer]\nmax_rate = %q\n", rate),
		decode:  fmt.Sprintf("[transfer]\nadvertise = %q\n%s", p.Addr(), decode),
	})
	address := c.decode.internal[len("http://"):]
	p.target.Store(&address)
	return c, p
}

// longCase is the golden case with the longest prompt, and the bytes that its transfer takes.
func longCase(t *testing.T) (goldenCase, int64) {
	t.Helper()
	g := embeddedGolden()
	cases := g.cases(t)
	longest := slices.MaxFunc(cases, func(a, b goldenCase) int {
		return len(a.PromptIDs) - len(b.PromptIDs)
	})
	if len(longest.PromptIDs) < 400 {
		t.Fatalf("the longest prompt has %d tokens", len(longest.PromptIDs))
	}
	return longest, int64(len(longest.PromptIDs)-1) * g.positionBytes(t)
}

// background posts a request and hands over the answer when it comes.
func background(ctx context.Context, t *testing.T, url string, body fields) <-chan reply {
	t.Helper()
	answers := make(chan reply, 1)
	data := body.reader(t)
	go func() {
		r, err := send(ctx, http.MethodPost, url, data)
		if err != nil {
			r.body = err.Error()
		}
		answers <- r
	}()
	return answers
}

// within waits for an answer that must come soon.
func within(t *testing.T, answers <-chan reply, since time.Time) reply {
	t.Helper()
	select {
	case r := <-answers:
		t.Logf("answered %v after the loss", time.Since(since).Round(time.Millisecond))
		return r
	case <-time.After(soon):
		t.Fatalf("no answer within %v", soon)
		return reply{}
	}
}

// TestPrefillDiesInTheMiddle kills the prefill process while its transfer is half done: the client
// gets its very completion, because the decode instance computes the prompt itself.
func TestPrefillDiesInTheMiddle(t *testing.T) {
	c, p := slowCluster(t, "225KiB/s", "")
	want, size := longCase(t)
	url := c.router.api + "/v1/completions"
	body := greedy.with(fields{"prompt": want.PromptIDs, "return_token_ids": true})
	answers := background(t.Context(), t, url, body)
	p.await(t, size/2)
	c.prefill.kill()
	killed := time.Now()
	got := within(t, answers, killed).completion(t)
	if !slices.Equal(got.Choices[0].TokenIDs, want.GreedyIDs) {
		t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, want.GreedyIDs)
	}
	if passed := p.passed.Load(); passed > size*9/10 {
		t.Errorf("%d bytes of %d had passed: that was not the middle", passed, size)
	}
	rest(t, c.decode)
	// The generation may begin before the connection is seen to be lost: it has overtaken it then.
	failures := func(labels ...string) float64 {
		return c.decode.metric("engine_transfer_failures_total", labels...)
	}
	ends := failures(`direction="receive"`, `reason="reset"`) +
		failures(`direction="receive"`, `reason="overtaken"`)
	if failed := failures(); failed != 1 || ends != 1 {
		t.Errorf("%v transfers failed, %v by reset or overtaken", failed, ends)
	}
	// Without a prefill instance the service goes on.
	for _, g := range embeddedGolden().cases(t) {
		begun := time.Now()
		answers := background(t.Context(), t, url, body.with(fields{"prompt": g.PromptIDs}))
		got := within(t, answers, begun).completion(t)
		if !slices.Equal(got.Choices[0].TokenIDs, g.GreedyIDs) {
			t.Errorf("%.40q: tokens %v, want %v", g.Prompt, got.Choices[0].TokenIDs, g.GreedyIDs)
		}
	}
	rest(t, c.decode)
	c.router.stop()
	c.decode.stop()
}

// TestPrefillDiesAndRecomputeIsOff is the same where the operator wants an error instead.
func TestPrefillDiesAndRecomputeIsOff(t *testing.T) {
	c, p := slowCluster(t, "225KiB/s", "on_failure = \"error\"\n")
	want, size := longCase(t)
	answers := background(t.Context(), t, c.router.api+"/v1/completions",
		greedy.with(fields{"prompt": want.PromptIDs}))
	p.await(t, size/2)
	c.prefill.kill()
	r := within(t, answers, time.Now())
	if code, message := r.failure(t); r.status != 503 || code != "kv_transfer_failed" ||
		message == "" || strings.Contains(message, "router-") {
		t.Errorf("%d %s %q", r.status, code, message)
	}
	rest(t, c.decode)
}

// TestClientVanishesInTheMiddle leaves while a transfer that would take long has begun: both
// instances let go of everything, long before it could have ended.
func TestClientVanishesInTheMiddle(t *testing.T) {
	want, size := longCase(t)
	for name, leave := range map[string]func(*testing.T, *cluster, func()){
		"whole": func(t *testing.T, c *cluster, middle func()) {
			ctx, cancel := context.WithCancel(t.Context())
			answers := background(ctx, t, c.router.api+"/v1/completions",
				greedy.with(fields{"prompt": want.PromptIDs}))
			middle()
			cancel()
			<-answers
		},
		"streamed": func(t *testing.T, c *cluster, middle func()) {
			ctx, cancel := context.WithCancel(t.Context())
			answers := background(ctx, t, c.router.api+"/v1/chat/completions", greedy.with(fields{
				"messages": []fields{{"role": "user",
					"content": want.Prompt[:len(want.Prompt)*3/4]}},
				"stream": true}))
			middle()
			cancel()
			<-answers
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, p := slowCluster(t, "30KiB/s", "")
			leave(t, c, func() { p.await(t, 20<<10) })
			left := time.Now()
			for _, n := range []*node{c.prefill, c.decode} {
				eventually(t, soon, func() error {
					s, err := scrape(n.internal)
					return errors.Join(err, s.atRest())
				})
			}
			t.Logf("both at rest %v after the client left",
				time.Since(left).Round(time.Millisecond))
			if passed := p.passed.Load(); passed > size/4 {
				t.Errorf("%d bytes of %d had passed", passed, size)
			}
			// The router cancels the call, and the receiver gives up the lease: whichever comes
			// first.
			cancelled := c.prefill.metric("engine_requests_finished_total", `reason="cancelled"`)
			failed := c.prefill.metric("engine_requests_finished_total", `reason="error"`)
			if cancelled+failed != 1 {
				t.Errorf("the prefill instance counts %v cancelled and %v failed requests",
					cancelled,
					failed)
			}
			// On the decode instance nothing failed: its reservation was released.
			if n := c.decode.metric("engine_requests_finished_total", `reason="error"`); n != 0 {
				t.Errorf("the decode instance counts %v failed requests", n)
			}
			c.rest(t)
			// Nothing is left that would disturb the next one.
			got := post(t, c.router.api+"/v1/completions", greedy.with(fields{
				"prompt": []int32{5, 6, 7}})).completion(t)
			if u := got.Usage.Usage; u.CompletionTokens != 40 {
				t.Errorf("%+v", got)
			}
			c.rest(t)
			c.stop()
		})
	}
}

// TestSlowTransferIsNoFailure lets a transfer of two seconds run to its end.
func TestSlowTransferIsNoFailure(t *testing.T) {
	c, p := slowCluster(t, "225KiB/s", "")
	want, size := longCase(t)
	begun := time.Now()
	var got openai.CompletionResponse
	post(t, c.router.api+"/v1/completions", greedy.with(fields{"prompt": want.PromptIDs,
		"return_token_ids": true})).decode(t, &got)
	took := time.Since(begun)
	if !slices.Equal(got.Choices[0].TokenIDs, want.GreedyIDs) {
		t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, want.GreedyIDs)
	}
	if passed := p.passed.Load(); passed < size || took < 1500*time.Millisecond {
		t.Errorf("%d bytes of %d passed in %v", passed, size, took)
	}
	if n := c.decode.metric("engine_transfer_bytes_total",
		`direction="receive"`); n != float64(size) {
		t.Errorf("%v bytes of KV were received, want %v", n, size)
	}
	c.rest(t)
	c.stop()
}
