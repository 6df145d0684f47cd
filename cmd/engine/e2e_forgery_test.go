package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// forgeries is scenario 52: what a sender makes of metadata that is not what the receiver wrote.
func forgeries(t *testing.T, l *lab) {
	c := l.call(t, 100)
	reserved := c.prepare(-1)
	letter, mac := readLetter(t, reserved.KVAppendMetadata)
	idle := func() float64 { return l.prefill.metric("engine_prefix_tokens_queried_total") }
	before := idle()

	for _, bad := range []string{"%%%", "AAAA", strings.Repeat("A", 70<<10),
		reserved.KVAppendMetadata[1:], "x" + reserved.KVAppendMetadata} {
		r := c.send(bad, 0, 99)
		if code, message := r.failure(t); r.status != 400 {
			t.Errorf("metadata %.20q: %d %s %s", bad, r.status, code, message)
		}
	}

	outside := listenDeaf(t, "127.0.0.2:0") // Loopback, but not among transfer.peers.
	forged := letter
	forged.Address = outside.Addr().String()
	c.refuses(c.send(forged.forge(t, mac), 0, 99), 400, "invalid_metadata", "127.0.0.2", "peers")
	forged.Address = "http://127.0.0.1/x"
	c.refuses(c.send(forged.forge(t, mac), 0, 99), 400, "invalid_metadata")
	outside.untouched(t)

	forged = letter
	forged.Token = strings.Repeat("0", 32)
	c.refuses(c.send(forged.forge(t, mac), 0, 99), 400, "invalid_metadata")
	forged = letter
	forged.Models = [][]int{{1, 0, 99}}
	c.refuses(c.send(forged.forge(t, mac), 0, 99), 400, "invalid_metadata")
	forged.Models = [][]int{letter.Models[0], letter.Models[0]}
	c.refuses(c.send(forged.forge(t, mac), 0, 99), 400, "invalid_metadata", "2 lists")

	// Another compat, by an instance whose pages are larger.
	other := *c
	other.decode = l.other
	c.refuses(c.send(other.prepare(-1).KVAppendMetadata, 0, 99), 409, "incompatible_instance",
		"page_size", "16", "32")
	other.release()

	if after := idle(); after != before {
		t.Errorf("the sender looked at %v tokens for nothing", after-before)
	}
	stranger(t, c)

	// The reservation itself has not suffered, and any recv_rank is as good as none.
	c.body["recv_rank"] = -3
	if r := c.send(reserved.KVAppendMetadata, 0, 99); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	c.answers(99)
	ranked := l.call(t, 20)
	reserved = ranked.prepare(-1)
	r := post(t, l.prefill.internal+"/microserving/remote_send", ranked.body.with(fields{
		"begin": 0, "end": 19, "kv_addr_info": reserved.KVAppendMetadata}))
	if r.status != http.StatusOK {
		t.Errorf("without recv_rank: %d %s", r.status, r.body)
	}
	ranked.answers(19)
}

// stranger points a sender at a peer that is allowed, but does not speak the protocol: it gets the
// opening frame and no KV.
func stranger(t *testing.T, c *caller) {
	reserved := c.prepareAs("stranger")
	letter, mac := readLetter(t, reserved)
	peer := listenDeaf(t, "127.0.0.1:0")
	letter.Address = peer.Addr().String()
	begun := time.Now()
	r := c.send(letter.forge(t, mac), 0, 99)
	if code, message := r.failure(t); r.status < 400 || time.Since(begun) > patience {
		t.Errorf("a stranger: %d %s %s after %v", r.status, code, message, time.Since(begun))
	}
	const opening = 2048 // The metadata and the sender's own values; a position's KV is as large.
	if got := peer.heard(); got == 0 || got > opening {
		t.Errorf("the stranger was told %d bytes", got)
	}
	drop := *c
	drop.body = c.body.with(fields{"user": "stranger"})
	drop.release()
}

// prepareAs reserves the caller's prompt under another id.
func (c *caller) prepareAs(user string) string {
	c.t.Helper()
	other := *c
	other.body = c.body.with(fields{"user": user})
	return other.prepare(-1).KVAppendMetadata
}

// deaf is a listener that answers nonsense and counts what it was told.
type deaf struct {
	net.Listener
	told chan int
}

func listenDeaf(t *testing.T, address string) *deaf {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this system has no %s: %v", address, err)
	}
	d := &deaf{l, make(chan int, 16)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(d.told)
				return
			}
			var first [64]byte
			n, _ := conn.Read(first[:])
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = conn.(*net.TCPConn).CloseWrite()
			rest, _ := io.Copy(io.Discard, conn)
			conn.Close()
			d.told <- n + int(rest)
		}
	}()
	return d
}

// heard is what the next connection said, in bytes.
func (d *deaf) heard() int {
	select {
	case n := <-d.told:
		return n
	case <-time.After(patience):
		return 0
	}
}

// untouched wants that nobody has connected.
func (d *deaf) untouched(t *testing.T) {
	t.Helper()
	d.Close()
	for n := range d.told {
		t.Errorf("somebody connected and said %d bytes", n)
	}
}
