package main

import (
	"net/http"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// caller makes the micro-serving calls of one request, field by field, as a router outside this
// project does.
type caller struct {
	t               *testing.T
	prefill, decode *node
	body            fields
}

// prepare reserves [0, end) on the decode instance.
func (c *caller) prepare(end int) openai.PrepareReceiveResponse {
	c.t.Helper()
	var r openai.PrepareReceiveResponse
	post(c.t, c.decode.internal+openai.PathPrepareReceive, c.body.with(fields{"end": end})).
		decode(c.t, &r)
	return r
}

// send has the prefill instance fill [begin, end).
func (c *caller) send(metadata string, begin, end int) reply {
	c.t.Helper()
	return post(c.t, c.prefill.internal+openai.PathRemoteSend, c.body.with(fields{
		"begin": begin, "end": end, "kv_addr_info": metadata, "recv_rank": 4,
	}))
}

// handOver reserves and fills [0, end).
func (c *caller) handOver(end int) {
	c.t.Helper()
	reserved := c.prepare(end)
	if reserved.PrefixMatchedLength >= end {
		return
	}
	r := c.send(reserved.KVAppendMetadata, reserved.PrefixMatchedLength, end)
	if r.status != http.StatusOK {
		c.t.Fatalf("remote_send: status %d: %s", r.status, r.body)
	}
}

// start generates from begin on.
func (c *caller) start(begin int) reply {
	c.t.Helper()
	return post(c.t, c.decode.internal+openai.PathStartGenerate, c.body.with(fields{"begin": begin}))
}
