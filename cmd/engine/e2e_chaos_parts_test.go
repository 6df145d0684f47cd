package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// chaosProxy stands before an instance at an address that stays. It can be cut, which resets every
// connection, and stalled, which holds back all bytes and keeps the connections open.
type chaosProxy struct {
	net.Listener

	mu     sync.Mutex
	target string
	open   map[net.Conn]bool
	flows  chan struct{} // closed while bytes may pass
}

func startChaosProxy(t *testing.T) *chaosProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &chaosProxy{Listener: l, open: map[net.Conn]bool{}, flows: make(chan struct{})}
	close(p.flows)
	t.Cleanup(func() { l.Close(); p.goOn(); p.cut() })
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

// lead changes where new connections go.
func (p *chaosProxy) lead(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// join copies both ways until either side ends, which ends the other.
func (p *chaosProxy) join(from net.Conn) {
	defer from.Close()
	<-p.gate()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		reset(from)
		return
	}
	defer to.Close()
	p.keep(true, from, to)
	defer p.keep(false, from, to)
	ended := make(chan struct{}, 2)
	carry := func(to, from net.Conn) {
		buffer := make([]byte, 16<<10)
		for {
			n, err := from.Read(buffer)
			<-p.gate()
			if n > 0 {
				if _, failed := to.Write(buffer[:n]); failed != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		ended <- struct{}{}
	}
	go carry(to, from)
	go carry(from, to)
	<-ended
}

func (p *chaosProxy) keep(open bool, list ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range list {
		if open {
			p.open[c] = true
		} else {
			delete(p.open, c)
		}
	}
}

func (p *chaosProxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flows
}

// cut resets every connection; new ones are let through.
func (p *chaosProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		reset(c)
	}
}

// reset closes a connection as a crash does, without a farewell.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // It may be closed already.
	}
	_ = c.Close()
}

func (p *chaosProxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flows = make(chan struct{})
}

func (p *chaosProxy) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
	default:
		close(p.flows)
	}
}

// chaosRequest is a request and what one engine alone answers.
type chaosRequest struct {
	name string
	body fields
	want chaosAnswer
}

// chaosAnswer is what must be equal, whichever instances made it.
type chaosAnswer struct {
	tokens   []int32
	text     string
	finish   string
	logprobs []float64
}

// differs says what is not as it should be; "" when all is.
func (a chaosAnswer) differs(want chaosAnswer) string {
	switch {
	case !slices.Equal(a.tokens, want.tokens):
		return fmt.Sprintf("tokens %v, want %v", a.tokens, want.tokens)
	case a.text != want.text || a.finish != want.finish:
		return fmt.Sprintf("%q (%s), want %q (%s)", a.text, a.finish, want.text, want.finish)
	case !slices.Equal(a.logprobs, want.logprobs):
		return fmt.Sprintf("logprobs %v, want %v", a.logprobs, want.logprobs)
	}
	return ""
}

// chaosBank makes requests of many kinds and has one engine answer them.
func chaosBank(t *testing.T, r *rand.Rand) []chaosRequest {
	t.Helper()
	alone := serveNode(t, "[node]\nname = \"alone\"\n")
	golden := embeddedGolden().cases(t)
	var bank []chaosRequest
	for i := range 60 {
		prompt := golden[r.IntN(len(golden))].PromptIDs
		prompt = prompt[:1+r.IntN(min(len(prompt), 380))] // Some begin alike.
		if i%3 == 0 {
			prompt = slices.Clone(prompt)
			prompt[0] = int32(3 + r.IntN(200)) // These match nothing.
		}
		body := fields{"prompt": prompt, "max_tokens": 1 + r.IntN(120), "seed": r.IntN(1 << 30),
			"temperature": []float64{0, 0.7, 1.3}[i%3], "return_token_ids": true}
		switch i % 6 {
		case 1:
			body["logprobs"], body["repetition_penalty"] = 2, 1.2
		case 2:
			body["frequency_penalty"], body["presence_penalty"] = 0.5, 0.3
			body["ignore_eos"] = true
		case 3:
			body["response_format"] = fields{"type": "json_schema", "json_schema": fields{
				"name": "x", "schema": fields{"type": "object", "properties": fields{
					"a": fields{"type": "integer"}, "b": fields{"type": "boolean"}},
					"required": []string{"a", "b"}}}}
			body["max_tokens"] = 60 + r.IntN(60)
		case 4:
			body["stop"], body["min_tokens"] = []string{"the"}, 5
			body["max_tokens"] = 5 + r.IntN(116)
		}
		q := chaosRequest{name: fmt.Sprintf("request %d (%d tokens)", i, len(prompt)), body: body}
		var err error
		if q.want, err = q.ask(t.Context(), alone.api+"/v1/completions", false); err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
		bank = append(bank, q)
	}
	alone.stop()
	return bank
}

// ask makes the request and reads the answer, whole or streamed.
func (q *chaosRequest) ask(ctx context.Context, url string, stream bool) (chaosAnswer, error) {
	data, err := json.Marshal(q.body.with(fields{"stream": stream}))
	if err != nil {
		return chaosAnswer{}, err
	}
	if !stream {
		return askWhole(ctx, url, data)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return chaosAnswer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return chaosAnswer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return chaosAnswer{}, fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	var a chaosAnswer
	events := openai.NewEventReader(response.Body)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("after %d tokens: %w", len(a.tokens), err)
		}
		if bytes.Contains(event, []byte(`"error":{`)) {
			return a, fmt.Errorf("after %d tokens: %s", len(a.tokens), event)
		}
		var c openai.CompletionResponse
		if err := json.Unmarshal(event, &c); err != nil {
			return a, err
		}
		a.add(&c)
	}
}

func askWhole(ctx context.Context, url string, body []byte) (a chaosAnswer, err error) {
	r, err := send(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	if r.status != http.StatusOK {
		return a, fmt.Errorf("status %d: %s", r.status, r.body)
	}
	var c openai.CompletionResponse
	err = json.Unmarshal([]byte(r.body), &c)
	a.add(&c)
	return a, err
}

// add takes what one event or answer holds.
func (a *chaosAnswer) add(c *openai.CompletionResponse) {
	for _, choice := range c.Choices {
		a.tokens = append(a.tokens, choice.TokenIDs...)
		a.text += choice.Text
		if choice.FinishReason != nil {
			a.finish = *choice.FinishReason
		}
		if choice.Logprobs != nil {
			for _, p := range choice.Logprobs.TokenLogprobs {
				a.logprobs = append(a.logprobs, float64(p))
			}
		}
	}
}

// residentKiB is the resident set of a process; 0 where the system does not say.
func residentKiB(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	fieldsOf := strings.Fields(rest)
	if len(fieldsOf) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fieldsOf[0])
	return kib
}
