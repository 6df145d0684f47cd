package model

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/safetensors"
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
}

// layer is a layerBlueprint with its weights.
type layer struct {
	*layerBlueprint
	attentionNorm, queryNorm, keyNorm, outNorm, mlpNorm, downNorm norm
	qkv, out, gateUp, down                                        linear
}

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
	device gpu.Device
	files  *safetensors.Weights
	hash   hash.Hash
	err    error
}

// build packs what the blueprint names. It checks every tensor's shape before it copies it.
func build(device gpu.Device, b *blueprint, files *safetensors.Weights) (*weights, error) {
	l := &builder{device: device, files: files, hash: sha256.New()}
	hashBlueprint(l.hash, b)
	w := &weights{blueprint: b}
	w.embedding = l.pack(b.Hidden, part{b.embedding, b.Vocabulary})
	for i := range b.layers {
		d := &b.layers[i]
		w.layers = append(w.layers, layer{
			layerBlueprint: d,
			attentionNorm:  l.norm(d.attentionNorm),
			qkv:            l.linear(d.qkv),
			queryNorm:      l.norm(d.queryNorm),
			keyNorm:        l.norm(d.keyNorm),
			out:            l.linear(d.out),
			outNorm:        l.norm(d.outNorm),
			mlpNorm:        l.norm(d.mlpNorm),
			gateUp:         l.linear(d.gateUp),
			down:           l.linear(d.down),
			downNorm:       l.norm(d.downNorm),
		})
	}
	w.finalNorm = l.norm(b.finalNorm)
	w.head = linear{w: w.embedding}
	if len(b.head.parts) > 0 {
		w.head = l.linear(b.head)
	}
	w.digest = [sha256.Size]byte(l.hash.Sum(nil))
	return w, l.err
}

// take finds a tensor and checks its shape and type. Without the tensor there is an error.
func (l *builder) take(name string, shape ...int) (gpu.DType, []byte) {
	if l.err != nil {
		return 0, nil
	}
	t, ok := l.files.Tensor(name)
	if !ok {
		l.err = fmt.Errorf("tensor %q is missing", name)
		return 0, nil
	}
	if !slices.Equal(t.Shape, shape) {
		l.err = fmt.Errorf("tensor %q has shape %v, the configuration makes it %v",
			name, t.Shape, shape)
		return 0, nil
	}
	hashTensor(l.hash, t)
	switch t.DType {
	case safetensors.F32:
		return gpu.F32, t.Data
	case safetensors.F16:
		return gpu.F16, t.Data
	case safetensors.BF16:
		return gpu.BF16, t.Data
	}
	l.err = fmt.Errorf("tensor %q is %s; weights may be F32, F16 or BF16", t.Name, t.DType)
	return 0, nil
}

// pack stacks matrices of cols columns. A part's name is that of its tensor.
func (l *builder) pack(cols int, parts ...part) gpu.Matrix {
	var tensors []gpu.Tensor
	for _, p := range parts {
		dtype, data := l.take(p.name, p.rows, cols)
		if l.err == nil && len(tensors) > 0 && dtype != tensors[0].DType {
			l.err = fmt.Errorf("tensor %q is %v, %q beside it %v: they are computed as one matrix",
				p.name, dtype, parts[0].name, tensors[0].DType)
		}
		tensors = append(tensors, gpu.Tensor{Rows: p.rows, Cols: cols, DType: dtype, Data: data})
	}
	if l.err != nil {
		return nil
	}
	m, err := l.device.Pack(tensors...)
	if err != nil {
		l.err = fmt.Errorf("pack %q: %w", parts[0].name, err)
	}
	return m
}

func (l *builder) linear(b linearBlueprint) linear {
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
	if l.err != nil {
		return nil
	}
	out := make([]float32, n)
	for i := range out {
		switch dtype {
		case gpu.F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case gpu.BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		case gpu.F16:
			out[i] = widenHalf(binary.LittleEndian.Uint16(data[2*i:]))
		}
	}
	return out
}

// widenHalf gives the value of an IEEE binary16.
func widenHalf(h uint16) float32 {
	sign, exponent, mantissa := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return float32(sign * math.Ldexp(mantissa, -24))
	case 31:
		if mantissa != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+mantissa, exponent-25))
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
	return b
}

const (
	// wholeTensor is the size up to which a tensor is hashed whole.
	wholeTensor = 1 << 20
	// samples and sampleBytes say what is hashed of a larger one, evenly spread, the ends included.
	samples     = 16
	sampleBytes = 64 << 10
)

// hashTensor adds a tensor to the digest: its name, type, shape and bytes, or 16 samples of 64 KiB
// of one larger than 1 MiB. It tells checkpoints apart at the price of a few hundred megabytes
// read; it is no proof that a file is whole.
func hashTensor(h hash.Hash, t safetensors.Tensor) {
	fmt.Fprintf(h, "%q %s %v %d\n", t.Name, t.DType, t.Shape, len(t.Data))
	if len(t.Data) <= wholeTensor {
		h.Write(t.Data)
		return
	}
	step := (len(t.Data) - sampleBytes) / (samples - 1)
	for i := range samples {
		h.Write(t.Data[i*step:][:sampleBytes])
	}
}

// hashBlueprint adds what the weights do not show: numbers that change the computation.
func hashBlueprint(w io.Writer, b *blueprint) {
	fmt.Fprintf(w, "%s %g %v\n", b.Architecture, b.embedScale, b.finalNorm)
	for _, l := range b.layers {
		fmt.Fprintln(w, l.rope.Freqs, l.rope.Scale, l.scale, l.window, l.sinks, l.activation,
			l.attentionNorm, l.queryNorm, l.keyNorm, l.outNorm, l.mlpNorm, l.downNorm)
	}
}

// errClosed is what a closed model answers.
var errClosed = errors.New("the model is closed")
