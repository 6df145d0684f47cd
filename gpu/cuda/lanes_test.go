package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// laneBytes is small, so that lanes are used again and again.
const laneBytes = 8 << 10

// lanePair is two processes with a lane between them: the first sends, the second receives.
type lanePair struct {
	*testing.T
	from, to           *cuda.Device
	fromLane, toLane   int
	fromState, toState *fake.Driver
	mutant             mutant
}

// laneKinds are what a lane may be: memory of the host, of one device, of two.
var laneKinds = []string{"host", "device", "peer"}

// meet makes the two processes, each on a driver of its own that passes through a mutant.
func meet(t *testing.T, kind string, seed uint64, m mutant) *lanePair {
	t.Helper()
	p := &lanePair{T: t, mutant: m}
	machine := &fake.Machine{}
	start := func(device int) (*cuda.Device, *fake.Driver) {
		d, state := fake.New(fake.Options{Seed: seed, Machine: machine, Device: device})
		opened, err := cuda.Open(wrapped(d, m),
			cuda.Options{Type: gpu.BF16, StagingBytes: 64 << 10})
		p.must(err)
		return opened, state
	}
	far := 0
	if kind == "peer" {
		far = 1
	}
	p.from, p.fromState = start(0)
	p.to, p.toState = start(far)
	same := p.from.Identity() == p.to.Identity()
	if same != (kind != "peer") || !p.from.Reaches(p.to.Identity()) {
		t.Fatalf("%s: devices %s and %s", kind, p.from.Identity(), p.to.Identity())
	}
	var err error
	if kind == "host" {
		memory := make([]byte, laneBytes)
		p.fromLane, err = p.from.AttachLane(memory, false)
		p.must(err)
		p.toLane, err = p.to.AttachLane(memory, true)
		p.must(err)
		return p
	}
	var handle []byte
	p.toLane, handle, err = p.to.LendLane(laneBytes)
	p.must(err)
	p.fromLane, err = p.from.BorrowLane(handle, laneBytes, p.to.Identity())
	p.must(err)
	return p
}

func (p *lanePair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// close takes the lanes and the devices away.
func (p *lanePair) close() {
	p.Helper()
	for _, err := range []error{p.from.DetachLane(p.fromLane), p.to.DetachLane(p.toLane),
		p.from.Close(), p.to.Close()} {
		if err != nil && !errors.Is(err, gpu.ErrLost) {
			p.Error(err)
		}
	}
}

// handOver computes a prompt in the first process and hands each layer to the second as a transfer
// does: packed behind its append, waited for, unpacked, and its room in the lane used again. It
// returns what arrived. Errors are part of that.
func handOver(p *lanePair) (out []byte) {
	const layers, rows = 7, 13
	sent, got := newPrefill(p.T, p.from, layers, rows), newPrefill(p.T, p.to, layers, rows)
	sent.errors, got.errors = &out, &out
	half := rows * sent.shape.TokenBytes()
	half = (half + 255) / 256 * 256
	var waits [layers]func() error
	m := p.mutant
	done := func(layer int) {
		if waits[layer] != nil {
			sent.must(waits[layer]())
			waits[layer] = nil
		}
	}
	finish := func(layer int) {
		done(layer)
		got.must(p.to.UnpackLane(got.kv, got.ranges(layer), p.toLane, layer%2*half))
	}
	sent.layers(func(layer int) {
		if layer >= 2 && !m.reuse { // Its room is the one before the last's.
			finish(layer - 2)
		}
		var err error
		waits[layer], err = p.from.PackLane(sent.kv, sent.ranges(layer), p.fromLane, layer%2*half)
		sent.must(err)
		if layer >= 2 && m.reuse {
			done(layer)
			finish(layer - 2)
		}
	})
	finish(layers - 2)
	finish(layers - 1)
	for layer := range layers {
		out = got.packs(out, layer, func(err error) bool {
			if err != nil {
				out = append(out, err.Error()...)
			}
			return err != nil
		})
	}
	return out
}

// TestLanesCarryLayers: what arrives through a lane of any kind is what was computed, whatever the
// order of streams, and each layer leaves in one copy.
func TestLanesCarryLayers(t *testing.T) {
	var want []byte
	d, _ := open(t, cuda.Options{}, fake.Options{})
	alone := newPrefill(t, d, 7, 13)
	alone.layers(func(int) {})
	for layer := range 7 {
		want = append(want, alone.pack(layer)...)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range laneKinds {
		for seed := range uint64(4) {
			p := meet(t, kind, seed, mutant{})
			before := len(p.fromState.Timeline())
			if got := handOver(p); !bytes.Equal(got, want) {
				t.Errorf("%s, seed %d: other bytes arrived", kind, seed)
			}
			copies := copiesBeside(p.fromState.Timeline()[before:])
			wants := map[string][2]int{"host": {7, 0}, "device": {0, 0}, "peer": {0, 7}}[kind]
			if got := [2]int{copies["copy out"], copies["copy within"]}; got != wants {
				t.Errorf("%s: %v copies out and to the other device of 7 layers, want %v", kind,
					got, wants)
			}
			p.close()
		}
	}
}

// copiesBeside counts what ran in the stream that packs layers.
func copiesBeside(spans []fake.Span) map[string]int {
	copies := map[string]int{}
	for _, packs := range spans {
		if !strings.HasPrefix(packs.What, "kv_pack") {
			continue
		}
		for _, s := range spans {
			if s.Stream == packs.Stream {
				copies[s.What]++
			}
		}
		break
	}
	return copies
}

// TestLaneOutlivesItsCopies: a lane that is taken away waits for what is under way in it, and
// memory of the host stays registered until then.
func TestLaneOutlivesItsCopies(t *testing.T) {
	for _, kind := range laneKinds {
		synctest.Test(t, func(t *testing.T) {
			p := meet(t, kind, 3, mutant{})
			k := newPrefill(t, p.from, 1, 13)
			k.layers(func(int) {})
			wait, err := p.from.PackLane(k.kv, k.ranges(0), p.fromLane, 0)
			p.must(err)
			gone := make(chan error, 1)
			go func() { gone <- p.from.DetachLane(p.fromLane) }()
			synctest.Wait()
			if len(gone) > 0 {
				t.Fatalf("%s: gone with a copy under way: %v", kind, <-gone)
			}
			if _, err := p.from.PackLane(k.kv, k.ranges(0), p.fromLane, 0); err == nil {
				t.Errorf("%s: took another layer", kind)
			}
			p.must(wait())
			p.must(<-gone)
			p.must(p.from.Close())
			p.must(p.to.Close())
		})
	}
}

// TestLaneCopiesHide: on the virtual clock a pass that sends each layer by registered memory takes
// as long as one that sends none, and longer where it waits for each copy.
func TestLaneCopiesHide(t *testing.T) {
	const layers, rows = 8, 16
	run := func(send func(wait func() error)) (took float64) {
		// A layer's copy of 1 KiB takes about as long as two of its four kernels.
		d, state := open(t, cuda.Options{NoGraphs: true}, fake.Options{Seed: 1, OutRate: 1e8})
		defer d.Close()
		number, err := d.AttachLane(make([]byte, layers<<10), false)
		p := newPrefill(t, d, layers, rows)
		p.must(err)
		before := len(state.Timeline())
		began := state.Timeline()[before-1].End
		var waits []func() error
		p.layers(func(layer int) {
			if send == nil {
				return
			}
			wait, err := d.PackLane(p.kv, p.ranges(layer), number, layer<<10)
			p.must(err)
			waits = append(waits, sync.OnceValue(wait))
			send(waits[layer])
		})
		for _, wait := range waits {
			p.must(wait())
		}
		for _, s := range state.Timeline()[before:] {
			if strings.HasPrefix(s.What, "attend") {
				took = s.End - began
			}
		}
		return took
	}
	alone := run(nil)
	hidden := run(func(func() error) {})
	waiting := run(func(wait func() error) { _ = wait() })
	if hidden > alone*1.05 || waiting < alone*1.3 {
		t.Errorf("the pass takes %.1f µs alone, %.1f with copies beside it, %.1f waiting for each",
			alone*1e6, hidden*1e6, waiting*1e6)
	}
}

// TestLaneSaysWhatItIs: two words written by one process are read by the other.
func TestLaneSaysWhatItIs(t *testing.T) {
	for _, kind := range laneKinds {
		p := meet(t, kind, 2, mutant{})
		word, got := []byte("what is said here"), make([]byte, 17)
		p.must(p.to.PokeLane(p.toLane, 512, word))
		p.must(p.from.PeekLane(p.fromLane, 512, got))
		if !bytes.Equal(got, word) {
			t.Errorf("%s: %q", kind, got)
		}
		if p.to.PokeLane(p.toLane, laneBytes-16, word) == nil {
			t.Errorf("%s: wrote beyond the end", kind)
		}
		p.close()
	}
}

// TestLaneOfOneProcess: a sender and a receiver on one device share a lane without a handle being
// opened, which the driver refuses within one process. Whichever end lets go first, the other keeps
// the memory, and the last gives it back.
func TestLaneOfOneProcess(t *testing.T) {
	other := meet(t, "device", 3, mutant{})
	want := handOver(other)
	other.close()
	for _, lenderFirst := range []bool{false, true} {
		d, state := open(t, cuda.Options{}, fake.Options{Seed: 3, Machine: &fake.Machine{}})
		p := &lanePair{T: t, from: d, to: d, fromState: state, toState: state}
		var handle []byte
		var err error
		p.toLane, handle, err = d.LendLane(laneBytes)
		p.must(err)
		p.fromLane, err = d.BorrowLane(handle, laneBytes, d.Identity())
		p.must(err)
		if got := handOver(p); !bytes.Equal(got, want) {
			t.Error("other bytes arrived")
		}
		if _, err := d.BorrowLane(handle, 2*laneBytes, d.Identity()); err == nil {
			t.Error("borrowed more than was lent")
		}
		first, last := p.fromLane, p.toLane
		if lenderFirst {
			first, last = last, first
		}
		word, got := []byte("still there"), make([]byte, 11)
		p.must(d.DetachLane(first))
		p.must(d.PokeLane(last, 0, word))
		p.must(d.PeekLane(last, 0, got))
		if !bytes.Equal(got, word) {
			t.Errorf("%q", got)
		}
		p.must(d.DetachLane(last))
		if _, err := d.BorrowLane(handle, laneBytes, d.Identity()); err == nil {
			t.Error("borrowed what is gone")
		}
		p.must(d.Close())
	}
}

// TestLanesRefuse: what does not fit a lane, a lane that is gone, memory that cannot be registered
// or lent, another machine's device. Nothing stays under way.
func TestLanesRefuse(t *testing.T) {
	p := meet(t, "device", 1, mutant{})
	k := newPrefill(t, p.from, 2, 13)
	k.layers(func(int) {})
	for name, f := range map[string]func() error{
		"an offset that is not aligned": func() error {
			_, err := p.from.PackLane(k.kv, k.ranges(0), p.fromLane, 8)
			return err
		},
		"beyond the end": func() error {
			_, err := p.from.PackLane(k.kv, k.ranges(0), p.fromLane, laneBytes-256)
			return err
		},
		"no ranges": func() error {
			_, err := p.from.PackLane(k.kv, nil, p.fromLane, 0)
			return err
		},
		"ranges of two layers": func() error {
			return p.from.UnpackLane(k.kv, append(k.ranges(0), k.ranges(1)...), p.fromLane, 0)
		},
		"a lane that is not there": func() error {
			_, err := p.from.PackLane(k.kv, k.ranges(0), 99, 0)
			return err
		},
		"a lane that nothing is taken from": func() error {
			n, err := p.to.AttachLane(make([]byte, laneBytes), false)
			p.must(err)
			return p.to.UnpackLane(pool(t, p.to, k.shape), k.ranges(0), n, 0)
		},
		"a handle of nothing": func() error {
			_, err := p.from.BorrowLane(make([]byte, 64), laneBytes, p.to.Identity())
			return err
		},
		"a handle of another size": func() error {
			_, err := p.from.BorrowLane(make([]byte, 8), laneBytes, p.to.Identity())
			return err
		},
	} {
		if err := f(); err == nil || errors.Is(err, gpu.ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p.from.Reaches("nonsense") || p.from.Reaches("") {
		t.Error("reaches what is no device")
	}
	p.close()
	if err := p.from.DetachLane(p.fromLane); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("detached twice: %v", err)
	}
}

// TestLaneFailures: a driver that refuses a call of a lane's way costs that layer and no more.
func TestLaneFailures(t *testing.T) {
	for _, call := range []string{"cuLaunchKernel", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
		"cuEventRecord", "cuMemHostRegister"} {
		failing := ""
		state, _ := fake.New(fake.Options{Seed: 1, Fail: func(name string) int {
			if name == failing {
				return 1
			}
			return 0
		}})
		d, err := cuda.Open(state, cuda.Options{Type: gpu.BF16, StagingBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, laneBytes)
		failing = call
		number, err := d.AttachLane(memory, false)
		if (err != nil) != (call == "cuMemHostRegister") {
			t.Errorf("%s: attach: %v", call, err)
		}
		failing = ""
		if err != nil {
			number, err = d.AttachLane(memory, false)
		}
		k := newPrefill(t, d, 1, 13)
		k.must(err)
		k.layers(func(int) {})
		failing = call
		_, err = d.PackLane(k.kv, k.ranges(0), number, 0)
		if (err == nil) != (call == "cuMemHostRegister") {
			t.Errorf("%s: pack: %v", call, err)
		}
		failing = ""
		wait, err := d.PackLane(k.kv, k.ranges(0), number, 0)
		k.must(err)
		k.must(wait())
		if want := k.pack(0); !bytes.Equal(memory[:len(want)], want) {
			t.Errorf("%s: other bytes after it", call)
		}
		if call != "cuMemHostRegister" {
			k.must(d.DetachLane(number))
		}
		k.must(d.Close())
	}
}

// TestLanesKeepOthersStaged: layers in lanes and layers staged for a connection share the memory in
// which they are packed, and neither gets the other's bytes.
func TestLanesKeepOthersStaged(t *testing.T) {
	for seed := range uint64(4) {
		p := meet(t, "host", seed, mutant{})
		k, other := newPrefill(t, p.from, 5, 13), newPrefill(t, p.from, 5, 13)
		other.layers(other.stage)
		var waits []func() error
		full := 0
		k.layers(func(layer int) {
			wait, err := p.from.PackLane(k.kv, k.ranges(layer), p.fromLane, layer*1536)
			k.must(err)
			if wait == nil {
				full++
				wait = func() error { return nil }
			}
			waits = append(waits, wait)
		})
		got := newPrefill(t, p.to, 5, 13)
		for layer, wait := range waits {
			k.must(wait())
			k.must(p.to.UnpackLane(got.kv, got.ranges(layer), p.toLane, layer*1536))
			if fmt.Sprint(got.pack(layer)) != fmt.Sprint(k.pack(layer)) {
				t.Errorf("seed %d: layer %d differs", seed, layer)
			}
		}
		if full > 0 {
			t.Errorf("%d layers found no room", full)
		}
		p.close()
	}
}
