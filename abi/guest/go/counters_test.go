package pol

import (
	"testing"

	"github.com/kvrelay/engine/abi"
)

func TestChunkWithin(t *testing.T) {
	free := abi.Header{ChunkMax: 2048}
	linear := abi.Header{ChunkMax: 2048, CostFixedUS: 1000, CostTokenNS: 10_000, DecodeTokens: 10}
	curved := linear
	curved.CostCtxPS = 10_000
	for _, c := range []struct {
		header  abi.Header
		context uint32
		target  int64
		want    uint32
	}{
		{free, 0, 1, 2048}, {linear, 0, 6_100_000, 500}, {linear, 0, 1_000_000, 0},
		{linear, 0, 1 << 60, 2048}, {curved, 1000, 6_100_000, 236},
	} {
		got := ChunkWithin(&c.header, c.context, c.target)
		if got != c.want {
			t.Errorf("%+v, context %d, %d ns: %d, want %d", c.header, c.context, c.target, got,
				c.want)
		}
	}
}

func TestCountersDoNotSaveUpRest(t *testing.T) {
	c := NewCounters(3)
	want := func(tenant uint32, service int64) {
		t.Helper()
		if got := c.Of(tenant); got != service {
			t.Errorf("tenant %d: %d, want %d", tenant, got, service)
		}
	}
	c.Enter(0)
	c.Charge(0, 100, 0)
	c.Enter(1)
	want(0, 100_000)
	want(1, 100_000)
	c.Charge(1, 100, 2000)
	want(1, 150_000)
	c.Leave(0)
	c.Charge(1, 1, 1000)
	c.Enter(0)
	want(0, 151_000)
	c.Enter(7)
	want(2, 151_000)
	c.Charge(1, 7, 3000)
	c.Refund(1, 7, 3000)
	want(1, 151_000)
}
