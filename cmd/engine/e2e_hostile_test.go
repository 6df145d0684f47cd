package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// target is an instance with small limits and those who try them.
type target struct {
	*node
	t       *testing.T
	address string
}

const (
	hostileConnections = 400
	hostileLimits      = "version = 1\n[api]\nmax_connections = 400\nmax_header = \"8KiB\"\n" +
		"max_body = \"2MiB\"\nwrite_timeout = \"2s\"\n"
	// hostileMemory bounds the instance's memory in KiB. It starts with less than 40 MiB; the
	// bodies that it may hold at once are 16 MiB, and each connection costs some tens of KiB.
	hostileMemory = 400 << 10
)

// TestHostileClients attacks one instance in many ways, one after the other: each gets one clear
// error or what it asked for, the instance lives and answers others meanwhile, and in the end holds
// nothing for anybody.
func TestHostileClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds and many connections")
	}
	n := serveNode(t, hostileLimits)
	h := &target{node: n, t: t, address: strings.TrimPrefix(n.api, "http://")}
	files := h.files()
	for _, attack := range []struct {
		name string
		run  func()
	}{
		{"connections", h.connections}, {"readers", h.readers}, {"bodies", h.bodies},
		{"floods", h.floods}, {"garbage", h.garbage}, {"gone", h.gone},
	} {
		start := time.Now()
		attack.run()
		h.lives()
		eventually(t, patience, func() error {
			if left := n.metric("engine_http_connections"); left > hostileConnections/4 {
				return fmt.Errorf("%v connections are open still", left)
			}
			return nil
		})
		t.Logf("%s took %v", attack.name, time.Since(start).Round(time.Millisecond))
	}
	rest(t, n)
	if runtime.GOOS != "linux" {
		return
	}
	eventually(t, patience, func() error {
		if now := h.files(); now > files+10 { // Other requests of this test keep connections.
			return fmt.Errorf("%d files are open, %d at first", now, files)
		}
		return nil
	})
	if peak := h.peakMemory(); peak > hostileMemory && !raced {
		t.Errorf("the instance took %d KiB, more than %d", peak, hostileMemory)
	}
}

// files counts the files that the instance has open; 0 where nobody can tell.
func (h *target) files() int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.cmd.Process.Pid))
	if err != nil && runtime.GOOS == "linux" {
		h.t.Error(err)
	}
	return len(list)
}

// peakMemory is the most that the instance had in memory, in KiB.
func (h *target) peakMemory() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.cmd.Process.Pid))
	if err != nil {
		h.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(after, "kB")
	peak, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		h.t.Fatalf("memory of %q: %v", line, err)
	}
	return peak
}

// dial opens a connection that ends with the test.
func (h *target) dial() net.Conn {
	h.t.Helper()
	c, err := net.Dial("tcp", h.address)
	if err != nil {
		h.t.Error(err)
		return nil
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// lives asks whether the instance lives, over a connection of its own.
func (h *target) lives() {
	h.t.Helper()
	if r := h.raw("GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); r.status != 200 {
		h.t.Errorf("/live: %d %s", r.status, r.body)
	}
}

// raw sends bytes over a connection of its own and reads one answer.
func (h *target) raw(text string) reply {
	h.t.Helper()
	c := h.dial()
	if c == nil {
		return reply{}
	}
	defer c.Close()
	go io.WriteString(c, text) // The instance may answer before it took all.
	return h.answer(c)
}

// answer reads one answer.
func (h *target) answer(c net.Conn) reply {
	h.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		h.t.Errorf("no answer: %v", err)
		return reply{}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Errorf("half an answer, %q: %v", body, err)
	}
	return reply{response.StatusCode, response.Header, string(body)}
}

// refuses sends bytes and wants an error object with that code.
func (h *target) refuses(code, text string) {
	h.t.Helper()
	r := h.raw(text)
	e := openai.DecodeError(r.status, []byte(r.body))
	if string(e.Code) != code || e.Status() != r.status {
		h.t.Errorf("%.60q: %d %s, want %s", text, r.status, r.body, code)
	}
}

func posted(body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
		len(body), body)
}

// connections opens more than there may be, of which some never finish what they began. Those in
// the limit are served, those beyond are told; a probe learns all the time that the instance lives.
func (h *target) connections() {
	const beyond, unfinished = 100, 50
	var open []net.Conn
	for i := range hostileConnections + beyond {
		c := h.dial()
		if c == nil {
			return
		}
		defer c.Close()
		open = append(open, c)
		switch {
		case i < unfinished:
			io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A")
		case i < 2*unfinished:
			io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"+
				"Content-Length: 99\r\n\r\n{")
		}
	}
	h.lives()
	counts := map[int]int{}
	for _, c := range open[2*unfinished:] {
		io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
		counts[h.answer(c).status]++
	}
	if served := hostileConnections - 2*unfinished; counts[200] != served ||
		counts[503] != beyond {
		h.t.Errorf("statuses %v, want %d times 200 and %d times 503", counts, served, beyond)
	}
}

// readers ask for long streams and do not read them.
func (h *target) readers() {
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			c := h.dial()
			if c == nil {
				return
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetReadBuffer(2048) // A wish.
			io.WriteString(c, posted(fmt.Sprintf(`{"prompt":"And %d","max_tokens":60,`+
				`"ignore_eos":true,"stream":true,"logprobs":5}`, i)))
			c.SetReadDeadline(time.Now().Add(patience))
			line, err := bufio.NewReaderSize(c, 16).ReadString(' ')
			if err != nil || line != "HTTP/1.1 " {
				h.t.Errorf("a stream began with %q: %v", line, err)
			}
		})
	}
	wait.Wait()
	h.lives()
}

// bodies sends what no request may hold, one by one and at once.
func (h *target) bodies() {
	const mega = 1 << 20
	prompt := func(text string) string { return posted(`{"prompt":"` + text + `"}`) }
	h.refuses("context_length_exceeded", prompt(strings.Repeat("word ", 3000)))
	h.refuses("request_too_large", prompt(strings.Repeat("a", 2*mega)))
	h.refuses("invalid_json", prompt("a\xff\xfe"))
	h.refuses("invalid_value", posted(`{"prompt":"a","stop":"`+strings.Repeat("a", mega)+`"}`))
	h.refuses("invalid_json", posted(`{"prompt":`+strings.Repeat("[", mega)))
	var wait sync.WaitGroup
	for range 12 { // As many as there is room for.
		wait.Go(func() {
			r := h.raw(prompt(strings.Repeat("abc ", mega/4)))
			switch e := openai.DecodeError(r.status, []byte(r.body)); e.Code {
			case openai.CodeContextLength, openai.CodeQueueFull:
			default:
				h.t.Errorf("a prompt of a megabyte: %d %s", r.status, r.body)
			}
		})
	}
	wait.Wait()
}

// floods sends headers and a body that do not end.
func (h *target) floods() {
	const start = "GET /v1/models HTTP/1.1\r\nHost: x\r\n"
	h.refuses("headers_too_large", start+"X-A: "+strings.Repeat("a", 9<<10)+"\r\n\r\n")
	h.refuses("headers_too_large", start+"X-A: "+strings.Repeat("a", 4<<20))
	h.refuses("headers_too_large", start+strings.Repeat("X-A: b\r\n", 1<<19))
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<16, strings.Repeat(" ", 1<<16))
	h.refuses("request_too_large", "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk, 80))
}

// garbage sends what is no HTTP, alone and behind a request, and old HTTP.
func (h *target) garbage() {
	h.refuses("invalid_value", "\x16\x03\x01\x02\r\n\r\n")
	h.refuses("invalid_value", "GET /live HTTP/9.9\r\nHost: x\r\n\r\n")
	h.refuses("invalid_value", "GET /live HTTP/1.1\r\n\r\n")
	h.refuses("invalid_json", "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"+
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
	if r := h.raw("GET /live HTTP/1.0\r\n\r\n"); r.status != 200 {
		h.t.Errorf("HTTP/1.0: %d %s", r.status, r.body)
	}
	c := h.dial()
	if c == nil {
		return
	}
	io.WriteString(c, "GET /live HTTP/1.1\r\nHost: x\r\n\r\n\x00\xff\r\n\r\n")
	both, err := io.ReadAll(c)
	if text := string(both); err != nil || !strings.HasPrefix(text, "HTTP/1.1 200 ") ||
		!strings.Contains(text, "HTTP/1.1 400 ") || !strings.Contains(text, "cannot be read") {
		h.t.Errorf("a request and garbage: %q, %v", both, err)
	}
}

// gone goes away in the middle of a stream: with a reset, and with half of the connection closed,
// which is how a client may say that it asks for nothing more.
func (h *target) gone() {
	for i := range 40 {
		c := h.dial()
		if c == nil {
			return
		}
		io.WriteString(c, posted(
			`{"prompt":"And","max_tokens":200,"ignore_eos":true,"stream":true}`))
		if i%2 == 0 {
			_ = c.(*net.TCPConn).SetLinger(0) // A reset.
			c.Close()
		} else {
			_ = c.(*net.TCPConn).CloseWrite() // It may be closed already.
		}
	}
}
