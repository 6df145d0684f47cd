package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
)

// prefill is the forward pass of a prompt as far as the pipeline sees it: each layer appends keys
// and values, flushes, stages them, and attends.
type prefill struct {
	*testing.T
	device *cuda.Device
	kv     gpu.KV
	shape  gpu.KVShape
	qkv    gpu.Buffer
	out    gpu.Buffer
	rows   int
	pages  []int32
	errors *[]byte // where errors are part of what is compared; nil: they end the test
}

const (
	heads    = 4
	kvHeads  = 2
	headDim  = 8
	pageSize = 4
)

func newPrefill(t *testing.T, d *cuda.Device, layers, rows int) *prefill {
	t.Helper()
	p := &prefill{T: t, device: d, rows: rows, shape: gpu.KVShape{Layers: layers,
		Pages: rows/pageSize + 4, PageSize: pageSize, KVHeads: kvHeads, HeadDim: headDim,
		DType: gpu.BF16}}
	var err error
	p.kv, err = d.AllocKV(p.shape)
	p.must(err)
	p.qkv, err = d.Alloc(rows * (heads + 2*kvHeads) * headDim)
	p.must(err)
	p.out, err = d.Alloc(rows * heads * headDim)
	p.must(err)
	for i := range (rows + pageSize - 1) / pageSize {
		p.pages = append(p.pages, int32(p.shape.Pages-1-i))
	}
	return p
}

func (p *prefill) must(err error) {
	p.Helper()
	switch {
	case err == nil:
	case p.errors != nil:
		*p.errors = append(*p.errors, err.Error()...)
	default:
		p.Fatal(err)
	}
}

// write gives each layer's queries, keys and values numbers of its own.
func (p *prefill) write(layer int, from float32) {
	values := make([]float32, p.qkv.Elements())
	for i := range values {
		values[i] = from + float32(layer) + float32(i%64)/64
	}
	p.must(p.device.Write(p.qkv, values))
}

func (p *prefill) append(layer int) {
	rope := gpu.RopeArgs{QKV: p.qkv, KV: p.kv, Layer: layer, Heads: heads, KVHeads: kvHeads,
		HeadDim: headDim, Rope: &gpu.Rope{Freqs: []float64{1, .1, .01, .001}, Scale: 1}}
	for r := range p.rows {
		rope.Positions = append(rope.Positions, int32(r))
		rope.Slots = append(rope.Slots, p.pages[r/pageSize]*pageSize+int32(r%pageSize))
	}
	p.must(p.device.RopeAppend(rope))
}

func (p *prefill) attend(layer int) {
	p.must(p.device.Attention(gpu.AttentionArgs{Dst: p.out, QKV: p.qkv, KV: p.kv, Layer: layer,
		Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Scale: 1,
		Sequences: []gpu.AttentionSequence{{Rows: p.rows, Pages: p.pages}}}))
}

// ranges are the prompt's slots in a layer.
func (p *prefill) ranges(layer int) (all []gpu.KVRange) {
	for i, page := range p.pages {
		all = append(all, gpu.KVRange{Layer: layer, Page: int(page),
			Count: min(pageSize, p.rows-i*pageSize)})
	}
	return all
}

// layers runs the pass; send is called where a model calls LayerDone.
func (p *prefill) layers(send func(layer int)) {
	for layer := range p.shape.Layers {
		p.write(layer, 0)
		p.append(layer)
		p.must(p.device.Flush())
		send(layer)
		p.attend(layer)
	}
	p.must(p.device.Sync())
}

func (p *prefill) stage(layer int) {
	p.must(p.device.StageKV(p.kv, layer, p.ranges(layer)))
}

// pack reads a layer as a connection does.
func (p *prefill) pack(layer int) []byte {
	var all []byte
	for _, r := range p.ranges(layer) {
		data := make([]byte, r.Count*p.shape.TokenBytes())
		p.must(p.device.PackKV(p.kv, r, data))
		all = append(all, data...)
	}
	return all
}

// TestStagedLayersAreWhatWasAppended: whatever the order of streams, and with the staging memory
// plenty, too small or full.
func TestStagedLayersAreWhatWasAppended(t *testing.T) {
	for seed := range uint64(6) {
		for _, staging := range []int{1 << 20, 8 << 10, 1 << 10} {
			d, _ := open(t, cuda.Options{StagingBytes: staging}, fake.Options{Seed: seed})
			want := newPrefill(t, d, 6, 13)
			want.layers(func(int) {})
			staged := newPrefill(t, d, 6, 13)
			staged.layers(staged.stage)
			for layer := range 6 {
				if !bytes.Equal(staged.pack(layer), want.pack(layer)) {
					t.Fatalf("seed %d, %d bytes of staging: layer %d differs", seed, staging, layer)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestStagedCopyDiesWithItsSlots: a page's next owner is never given its former one's.
func TestStagedCopyDiesWithItsSlots(t *testing.T) {
	d, _ := open(t, cuda.Options{}, fake.Options{Seed: 3})
	defer d.Close()
	for name, overwrite := range map[string]func(p *prefill){
		"append": func(p *prefill) { p.write(0, 9); p.append(0); p.must(d.Flush()) },
		"copy": func(p *prefill) {
			p.must(d.CopyKV(p.kv, []gpu.KVCopy{{From: p.pages[1], To: p.pages[0], Tokens: 2}}))
		},
		"unpack": func(p *prefill) {
			data := bytes.Repeat([]byte{7}, pageSize*p.shape.TokenBytes())
			p.must(d.UnpackKV(p.kv, gpu.KVRange{Page: int(p.pages[2]), Count: pageSize}, data))
		},
	} {
		p, twin := newPrefill(t, d, 1, 12), newPrefill(t, d, 1, 12)
		p.layers(p.stage)
		twin.layers(func(int) {})
		overwrite(p)
		overwrite(twin)
		if !bytes.Equal(p.pack(0), twin.pack(0)) {
			t.Errorf("%s: the slots' former numbers were packed", name)
		}
	}
}

// TestStagingRing packs and stages at random beside a copy of all pages.
func TestStagingRing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d, _ := open(t, cuda.Options{StagingBytes: 16 << 10}, fake.Options{Seed: seed})
	defer d.Close()
	p := newPrefill(t, d, 3, 40)
	p.layers(func(int) {})
	var want [3][]byte
	for layer := range want {
		want[layer] = p.pack(layer)
	}
	for range 400 {
		layer := random.IntN(3)
		all := p.ranges(layer)
		from := random.IntN(len(all))
		to := from + 1 + random.IntN(len(all)-from)
		if random.IntN(2) == 0 {
			p.must(d.StageKV(p.kv, layer, all[from:to]))
			continue
		}
		bytesOf := pageSize * p.shape.TokenBytes()
		data := make([]byte, bytesOf)
		p.must(d.PackKV(p.kv, all[from], data))
		if !bytes.Equal(data, want[layer][from*bytesOf:][:bytesOf]) {
			t.Fatalf("layer %d, page %d differs", layer, all[from].Page)
		}
	}
}

// TestCopiesHide: on the virtual clock every layer's copy but the last is over before the next
// layer's is begun, and the pass takes as long as without any; where each layer waits for its copy
// it takes longer.
func TestCopiesHide(t *testing.T) {
	const layers, rows = 8, 16
	// A layer's copy of 1 KiB takes about as long as two of its four kernels.
	options := fake.Options{Seed: 1, OutRate: 1e8}
	run := func(send func(p *prefill, layer int)) (took float64, spans []fake.Span) {
		d, state := open(t, cuda.Options{NoGraphs: true}, options)
		defer d.Close()
		p := newPrefill(t, d, layers, rows)
		before := len(state.Timeline())
		began := state.Timeline()[before-1].End
		p.layers(func(layer int) { send(p, layer) })
		for layer := range layers {
			p.pack(layer)
		}
		for _, s := range state.Timeline()[before:] {
			if strings.HasPrefix(s.What, "attend") {
				took = s.End - began
			}
			spans = append(spans, s)
		}
		return took, spans
	}
	alone, _ := run(func(*prefill, int) {})
	hidden, spans := run(func(p *prefill, layer int) { p.stage(layer) })
	waiting, _ := run(func(p *prefill, layer int) { p.stage(layer); p.pack(layer) })
	if hidden > alone*1.05 {
		t.Errorf("the pass takes %.1f µs with copies beside it, %.1f without", hidden*1e6,
			alone*1e6)
	}
	if waiting < alone*1.3 {
		t.Errorf("the pass takes %.1f µs when it waits for each copy, %.1f without any",
			waiting*1e6, alone*1e6)
	}
	var out, attend []fake.Span
	for _, s := range spans {
		switch {
		case s.What == "copy out":
			out = append(out, s)
		case strings.HasPrefix(s.What, "attend"):
			attend = append(attend, s)
		}
	}
	if len(out) != layers || len(attend) != layers {
		t.Fatalf("%d copies and %d attentions of %d layers", len(out), len(attend), layers)
	}
	for i := range layers - 1 {
		if out[i].End > attend[layers-1].End {
			t.Errorf("layer %d's copy ends at %.1f µs, the pass at %.1f", i, out[i].End*1e6,
				attend[layers-1].End*1e6)
		}
		if out[i].Begin >= attend[i+1].Begin {
			t.Errorf("layer %d's copy begins at %.1f µs, after the next layer's attention", i,
				out[i].Begin*1e6)
		}
	}
}

// TestFailures: an error says what it was, what can be done again can, and a lost device stays
// lost.
func TestFailures(t *testing.T) {
	failing, code := "", 0
	d, _ := open(t, cuda.Options{}, fake.Options{Memory: 128 << 20, Fail: func(call string) int {
		if call == failing {
			return code
		}
		return 0
	}})
	if _, err := d.Alloc(1 << 28); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("512 MiB of 128: %v", err)
	}
	p := newPrefill(t, d, 2, 8)
	failing, code = "cuLaunchKernel", 701
	p.write(0, 0)
	p.append(0)
	if err := d.Sync(); err == nil || errors.Is(err, gpu.ErrLost) {
		t.Errorf("a refused launch: %v", err)
	}
	failing = ""
	p.layers(p.stage)
	failing, code = "cuStreamSynchronize", 700
	p.write(0, 0)
	if err := d.Sync(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("a kernel that fails: %v", err)
	}
	failing = ""
	for name, err := range map[string]error{
		"sync":  d.Sync(),
		"pack":  d.PackKV(p.kv, p.ranges(0)[0], make([]byte, pageSize*p.shape.TokenBytes())),
		"stage": d.StageKV(p.kv, 0, p.ranges(0)),
		"write": d.Write(p.qkv, []float32{1}),
	} {
		if name != "write" && !errors.Is(err, gpu.ErrLost) {
			t.Errorf("%s on a lost device: %v", name, err)
		}
	}
	if err := d.Close(); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("close of a lost device: %v", err)
	}
}

// TestGraphs: steps that come again are replayed, with the numbers of their own.
func TestGraphs(t *testing.T) {
	results := map[bool][][]float32{}
	for _, off := range []bool{true, false} {
		replays := 0
		d, _ := open(t, cuda.Options{NoGraphs: off}, fake.Options{Fail: func(call string) int {
			if call == "cuGraphLaunch" {
				replays++
			}
			return 0
		}})
		p := newPrefill(t, d, 4, 8)
		for step := range 6 {
			for layer := range 4 {
				p.write(layer, float32(step))
				p.append(layer)
				p.attend(layer)
			}
			out := make([]float32, p.out.Elements())
			p.must(d.Read(out, p.out, 0))
			results[off] = append(results[off], out)
		}
		if want := map[bool]int{true: 0, false: 5}[off]; replays != want {
			t.Errorf("graphs off %t: %d of 6 steps were replayed, want %d", off, replays, want)
		}
		p.must(d.Close())
	}
	for step := range results[true] {
		if fmt.Sprint(results[true][step]) != fmt.Sprint(results[false][step]) {
			t.Errorf("step %d differs when it is replayed", step)
		}
	}
}
