package model

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"

	"github.com/kvrelay/engine/gpu"
)

// weights are a model's parameters on its device. Models that share them take turns.
type weights struct {
	turn      sync.Mutex
	blueprint *blueprint
	embedding gpu.Matrix
	layers    []layer
	finalNorm norm
	head      linear
	digest    [sha256.Size]byte
	types     []gpu.DType // of the matrices that activations are multiplied by
}

// layer is a layerBlueprint with its weights.
type layer struct {
	*layerBlueprint
	attentionNorm, queryNorm, keyNorm, outNorm, mlpNorm, downNorm norm
	qkv, out, router                                              linear
	mlp                                                           mlp
	experts                                                       []mlp
}

// mlp is an mlpBlueprint with its weights.
type mlp struct{ gateUp, down linear }

// norm is a normBlueprint with its weight; without one there is no norm.
type norm struct {
	weight gpu.Buffer
	normBlueprint
}

func (n norm) exists() bool { return n.weight != nil }

type linear struct {
	w    gpu.Matrix
	bias gpu.Buffer // nil without
}

// builder copies weights to a device. The first error stays.
type builder struct {
	device      gpu.Device
	files       checkpoint
	options     Options
	hash        hash.Hash
	taken       map[string]bool
	types       []gpu.DType // of the matrices packed
	done, total int64       // bytes of the files
	err         error
}

// build packs what the blueprint names. It checks every tensor's shape before it copies it.
func build(
	device gpu.Device, b *blueprint, files checkpoint, o Options,
) (*weights, error) {
	l := &builder{device: device, files: files, options: o, hash: sha256.New(),
		taken: map[string]bool{}}
	hashBlueprint(l.hash, b, o.DType)
	if err := l.measure(b); err != nil {
		return nil, err
	}
	w := &weights{blueprint: b}
	w.embedding = l.pack(b.Hidden, part{b.embedding, b.Vocabulary})
	if len(b.head.parts) > 0 {
		l.types = nil // The embedding is only looked up.
	}
	for i := range b.layers {
		w.layers = append(w.layers, l.layer(&b.layers[i]))
	}
	w.finalNorm = l.norm(b.finalNorm)
	w.head = linear{w: w.embedding}
	if len(b.head.parts) > 0 {
		w.head = l.linear(b.head)
	}
	w.digest, w.types = [sha256.Size]byte(l.hash.Sum(nil)), l.types
	if l.err == nil {
		l.err = unused(b, files, l.taken)
	}
	return w, l.err
}

// layer packs one layer.
func (l *builder) layer(d *layerBlueprint) layer {
	out := layer{
		layerBlueprint: d,
		attentionNorm:  l.norm(d.attentionNorm),
		qkv:            l.linear(d.qkv),
		queryNorm:      l.norm(d.queryNorm),
		keyNorm:        l.norm(d.keyNorm),
		out:            l.linear(d.out),
		outNorm:        l.norm(d.outNorm),
		mlpNorm:        l.norm(d.mlpNorm),
		mlp:            l.mlp(d.mlp),
		router:         l.linear(d.router),
	}
	for _, e := range d.experts {
		out.experts = append(out.experts, l.mlp(e))
	}
	out.downNorm = l.norm(d.downNorm)
	return out
}

func (l *builder) mlp(b mlpBlueprint) mlp {
	return mlp{gateUp: l.linear(b.gateUp), down: l.linear(b.down)}
}

// measure adds up what will be copied, and asks whether it may.
func (l *builder) measure(b *blueprint) error {
	need := b.Config.Need(l.options)
	need.Weights = 0
	b.tensors(func(name string, shape ...int) {
		t, ok := l.files.Tensor(name)
		if !ok {
			return // take says so when it comes to it
		}
		l.total += int64(t.size)
		if len(shape) == 1 {
			need.Weights += int64(shape[0]) * int64(gpu.F32.Bytes())
			return
		}
		dtype := t.dtype
		if l.options.DType != nil {
			dtype = *l.options.DType
		}
		need.Weights += int64(shape[0]) * int64(dtype.RowBytes(shape[1]))
	})
	if l.options.Admit != nil {
		return l.options.Admit(need)
	}
	return nil
}

// unused refuses a checkpoint with tensors that nothing took: it was made for another computation.
// The frequencies that old files hold follow from the configuration.
func unused(b *blueprint, files checkpoint, taken map[string]bool) error {
	for _, name := range files.Names() {
		if taken[name] || strings.HasSuffix(name, ".rotary_emb.inv_freq") ||
			b.Tied && name == "lm_head.weight" {
			continue
		}
		return fmt.Errorf("tensor %q belongs to no part of %s as config.json describes it",
			name, b.Architecture)
	}
	return nil
}

// take finds a tensor and checks its shape and type. Without the tensor there is an error.
func (l *builder) take(name string, shape ...int) (gpu.DType, []byte) {
	if l.err != nil {
		return 0, nil
	}
	t, err := find(l.files, name, shape)
	if err != nil {
		l.err = err
		return 0, nil
	}
	data := t.data()
	hashTensor(l.hash, t, data)
	l.taken[name] = true
	l.done += int64(len(data))
	return t.dtype, data
}

// report tells how far the copying is, and whether it goes on.
func (l *builder) report() {
	if l.err == nil && l.options.Progress != nil {
		l.err = l.options.Progress(l.done, l.total)
	}
}

// pack stacks matrices of cols columns. A part's name is that of its tensor.
func (l *builder) pack(cols int, parts ...part) gpu.Matrix {
	var tensors []gpu.Tensor
	for _, p := range parts {
		dtype, data := l.take(p.name, p.rows, cols)
		tensors = append(tensors, gpu.Tensor{Rows: p.rows, Cols: cols, DType: dtype, Data: data})
	}
	l.convert(tensors, parts)
	if l.err != nil {
		return nil
	}
	for _, t := range tensors {
		if !slices.Contains(l.types, t.DType) {
			l.types = append(l.types, t.DType)
		}
	}
	m, err := l.device.Pack(tensors...)
	if err != nil {
		l.err = fmt.Errorf("pack %q: %w", parts[0].name, err)
	}
	for _, p := range parts { // So that weights are in memory once, not twice.
		l.files.Forget(p.name)
	}
	l.report()
	return m
}

// convert brings tensors to the type that the options name.
func (l *builder) convert(tensors []gpu.Tensor, parts []part) {
	if l.options.DType == nil || l.err != nil {
		return
	}
	for i := range tensors {
		if err := convert(&tensors[i], *l.options.DType); err != nil {
			l.err = fmt.Errorf("tensor %q: %w", parts[i].name, err)
			return
		}
	}
}

// linear packs projections; of no parts there is nothing.
func (l *builder) linear(b linearBlueprint) linear {
	if len(b.parts) == 0 {
		return linear{}
	}
	var named []part
	for _, p := range b.parts {
		named = append(named, part{p.name + ".weight", p.rows})
	}
	out := linear{w: l.pack(b.cols, named...)}
	if b.bias {
		var bias []float32
		for _, p := range b.parts {
			bias = append(bias, l.vector(p.name+".bias", p.rows)...)
		}
		out.bias = l.upload(bias)
	}
	return out
}

func (l *builder) norm(b normBlueprint) norm {
	if b.name == "" {
		return norm{}
	}
	return norm{weight: l.upload(l.vector(b.name, b.dim)), normBlueprint: b}
}

// vector widens a tensor of one dimension.
func (l *builder) vector(name string, n int) []float32 {
	dtype, data := l.take(name, n)
	if l.err == nil {
		l.err = vectorType(name, dtype)
	}
	if l.err != nil {
		return nil
	}
	defer l.files.Forget(name)
	return widen(dtype, data)
}

// upload copies numbers to a buffer of the device.
func (l *builder) upload(values []float32) gpu.Buffer {
	if l.err != nil {
		return nil
	}
	b, err := l.device.Alloc(len(values))
	if err == nil {
		err = l.device.Write(b, values)
	}
	if err != nil {
		l.err = fmt.Errorf("copy weights to %s: %w", l.device.Name(), err)
	}
	l.report()
	return b
}

// errClosed is what a closed model answers.
var errClosed = errors.New("the model is closed")
