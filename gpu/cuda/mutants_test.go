package cuda_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// mutant is a synchronisation bug: a call that the device no longer makes, or an order that its
// caller no longer keeps. Every one must show, with one of a few orders of the streams at least.
type mutant struct {
	name string
	drop string // the driver's call that is left out, where
	site string // this function of the device is on the stack
	// early stages a layer before its append was flushed; reuse gives its slots to another prompt
	// before they were packed.
	early, reuse bool
}

var mutants = []mutant{
	{name: "the copy stream does not wait for the append", drop: "Wait", site: "inOrder"},
	{name: "no event stands behind a batch of kernels", drop: "Record", site: "runArena"},
	{name: "no event stands behind a staged copy", drop: "Record", site: ".stage"},
	{name: "staged bytes are sent before their copy is done", drop: "Sync", site: ".take"},
	{name: "page tables are overwritten while the device reads them", drop: "Sync",
		site: "nextArena"},
	{name: "a batch starts without what the host says", drop: "CopyIn", site: "runArena"},
	{name: "a packed layer starts without its list of slots", drop: "CopyIn", site: ".stage"},
	{name: "slots are sent before their copy is done", drop: "Finish", site: ".direct"},
	{name: "slots that arrive overwrite each other in the staging memory", drop: "Finish",
		site: ".write"},
	{name: "slots go to their pages before they have arrived", drop: "CopyIn", site: ".writeAll"},
	{name: "a result is read before it was computed", drop: "Finish", site: ".finish"},
	{name: "weights overwrite each other in the staging memory", drop: "Finish",
		site: "uploader"},
	{name: "a layer is copied before its append", early: true},
	{name: "a page gets its next owner before it was packed", reuse: true},
}

// laneMutants are bugs of what goes from process to process without a connection's bytes.
var laneMutants = []mutant{
	{name: "a layer is packed for another process before its append", drop: "Wait",
		site: "inOrder"},
	{name: "the other process is told of a layer before its copy is done", drop: "Sync",
		site: "PackLane"},
	{name: "no event stands behind a layer's way to the other process", drop: "Record",
		site: ".put"},
	{name: "a layer for another process is packed without its list of slots", drop: "CopyIn",
		site: ".put"},
	{name: "a layer's room is given back before it was read", drop: "Sync", site: "UnpackLane"},
	{name: "no event stands behind a layer that arrives", drop: "Record", site: ".fetch"},
	{name: "a layer that arrives is unpacked without its bytes or slots", drop: "CopyIn",
		site: ".fetch"},
	{name: "a layer's room is used again before the other process has read it", reuse: true},
}

// throughLanes is all that a lane of each kind carries.
func throughLanes(t *testing.T, m mutant, seed uint64) (out []byte) {
	t.Helper()
	for _, kind := range laneKinds {
		p := meet(t, kind, seed, m)
		out = append(out, handOver(p)...)
		p.close()
	}
	return out
}

// dropping leaves calls out.
type dropping struct {
	driver.Driver
	mutant
}

// drops says whether a call comes from where the mutant has none.
func (d *dropping) drops(call string) bool {
	if d.drop != call {
		return false
	}
	var at [64]uintptr
	frames := runtime.CallersFrames(at[:runtime.Callers(2, at[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, d.site) && !strings.Contains(frame.Function, "_test") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (d *dropping) Wait(s driver.Stream, e driver.Event) error {
	if d.drops("Wait") {
		return nil
	}
	return d.Driver.Wait(s, e)
}

func (d *dropping) Record(e driver.Event, s driver.Stream) error {
	if d.drops("Record") {
		return nil
	}
	return d.Driver.Record(e, s)
}

func (d *dropping) Sync(e driver.Event) error {
	if d.drops("Sync") {
		return nil
	}
	return d.Driver.Sync(e)
}

func (d *dropping) Finish(s driver.Stream) error {
	if d.drops("Finish") {
		return nil
	}
	return d.Driver.Finish(s)
}

func (d *dropping) CopyIn(to driver.Pointer, from []byte, s driver.Stream) error {
	if d.drops("CopyIn") {
		return nil
	}
	return d.Driver.CopyIn(to, from, s)
}

// wrapped is a driver whose calls pass through the mutant.
func wrapped(d driver.Driver, m mutant) driver.Driver {
	w := &dropping{d, m}
	d.Streams, d.Events, d.Copies = w, w, w
	return d
}

// outcome is all that the pipeline makes: what layers carry, what arrives, what products give. An
// error is an outcome too.
func outcome(t *testing.T, m mutant, seed uint64) (out []byte) {
	t.Helper()
	state, _ := fake.New(fake.Options{Seed: seed})
	d, err := cuda.Open(wrapped(state, m), cuda.Options{Type: gpu.BF16,
		StagingBytes: 64 << 10})
	if err != nil {
		return []byte(err.Error())
	}
	defer d.Close()
	fail := func(err error) bool {
		if err != nil {
			out = append(out, err.Error()...)
		}
		return err != nil
	}
	p := newPrefill(t, d, 7, 13)
	p.errors = &out
	for layer := range p.shape.Layers {
		p.write(layer, 0)
		p.append(layer)
		if m.early {
			p.stage(layer)
		}
		if fail(d.Flush()) {
			return out
		}
		if !m.early && layer%2 == 0 {
			p.stage(layer)
		}
		if m.reuse && layer == 2 {
			p.write(layer, 5)
			p.append(layer)
			p.must(d.Flush())
		}
		p.attend(layer)
		out = p.packs(out, layer, fail)
	}
	rows := make([]float32, p.out.Elements())
	if fail(d.Read(rows, p.out, 0)) {
		return out
	}
	out = append(out, fmt.Sprint(rows)...)
	if out = ahead(t, d, out, fail); fail(d.Sync()) {
		return out
	}
	arrived := newPrefill(t, d, 1, 13)
	for i, r := range arrived.ranges(0) {
		data := bytes.Repeat([]byte{byte(i + 1)}, r.Count*arrived.shape.TokenBytes())
		if fail(d.UnpackKV(arrived.kv, r, data)) {
			return out
		}
	}
	out = arrived.packs(out, 0, fail)
	return append(out, table(p, fail)...)
}

// ahead gives the device more batches of work than it takes at once, without waiting for any.
func ahead(t *testing.T, d *cuda.Device, out []byte, fail func(error) bool) []byte {
	p := newPrefill(t, d, 11, 13)
	p.errors = &out
	for layer := range p.shape.Layers {
		p.write(layer, 3)
		p.append(layer)
		p.must(d.Flush())
		p.attend(layer)
	}
	fail(d.Sync())
	for layer := range p.shape.Layers {
		out = p.packs(out, layer, fail)
	}
	return out
}

// packs is pack where errors are part of the outcome.
func (p *prefill) packs(out []byte, layer int, fail func(error) bool) []byte {
	for _, r := range p.ranges(layer) {
		data := make([]byte, r.Count*p.shape.TokenBytes())
		if fail(p.device.PackKV(p.kv, r, data)) {
			return out
		}
		out = append(out, data...)
	}
	return out
}

// table looks up rows of a matrix large enough to pass through the staging memory in three pieces.
func table(p *prefill, fail func(error) bool) string {
	const rows, cols = 1280, 1 << 12
	data := make([]byte, 2*rows*cols)
	for r := range rows {
		data[2*r*cols], data[2*r*cols+1] = byte(r), 0x3f+byte(r>>8)
	}
	w, err := p.device.Pack(gpu.Tensor{Rows: rows, Cols: cols, DType: gpu.BF16, Data: data})
	if fail(err) {
		return ""
	}
	tokens := []int32{0, 1, 511, 512, 800, 1023, 1024, 1279}
	dst, err := p.device.Alloc(len(tokens) * cols)
	p.must(err)
	if fail(p.device.Embed(dst, w, tokens, 1)) {
		return ""
	}
	firsts := ""
	for i := range tokens {
		one := make([]float32, 1)
		fail(p.device.Read(one, dst, i*cols))
		firsts += fmt.Sprint(one)
	}
	return firsts
}

// TestSynchronisationMutants: the pipeline gives the same in every order of the streams, and with
// each of the bugs it does not in some.
func TestSynchronisationMutants(t *testing.T) {
	hunt(t, mutants, outcome)
	hunt(t, laneMutants, throughLanes)
}

func hunt(t *testing.T, list []mutant, outcome func(*testing.T, mutant, uint64) []byte) {
	const seeds = 4
	want := outcome(t, mutant{}, 0)
	for seed := range uint64(seeds) {
		if !bytes.Equal(outcome(t, mutant{}, seed), want) {
			t.Fatalf("seed %d: the outcome depends on the order of streams", seed)
		}
	}
	for _, m := range list {
		caught := false
		for seed := uint64(0); seed < seeds && !caught; seed++ {
			caught = !bytes.Equal(outcome(t, m, seed), want)
		}
		if !caught {
			t.Errorf("%s: not caught with any of %d seeds", m.name, seeds)
		}
	}
}
