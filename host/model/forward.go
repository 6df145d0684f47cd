package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/batch"
)

// Run computes one batch and returns a row of Config().Vocabulary logits for each requested row, in
// item order, nil where the item's Chooser chose on the device. The rows are valid until the next
// Run. A batch that breaks a rule (an unknown token, a position outside the context, too few pages,
// more rows than MaxRows) is an error, and nothing was computed.
func (m *Model) Run(b *batch.Batch) ([][]float32, error) {
	if m.weights == nil {
		return nil, errClosed
	}
	if err := m.check(b); err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	m.weights.turn.Lock()
	defer m.weights.turn.Unlock()
	m.scratch.prepare(b, m.kv.PageSize())
	p := pass{m: m, s: m.scratch, device: m.device, weights: m.weights,
		config: &m.weights.blueprint.Config, hidden: m.scratch.hidden,
		rows: len(m.scratch.positions)}
	p.do("copy pages", m.device.CopyKV(m.kv.kv, m.scratch.copies))
	if p.rows > 0 {
		p.forward(b)
	}
	p.do("wait", m.device.Sync())
	if p.err != nil {
		return nil, fmt.Errorf("forward pass on %s: %w", m.device.Name(), p.err)
	}
	return m.scratch.rows[:len(m.scratch.wanted)], nil
}

// pass is one forward pass.
type pass struct {
	m       *Model
	s       *scratch
	device  gpu.Device
	weights *weights
	config  *Config
	hidden  gpu.Buffer // of the rows under way: all, or in the last layer the wanted ones
	rows    int
	err     error
}

// do keeps the first error. Callers check it once a layer: a kernel after a failed one computes
// something that nobody reads.
func (p *pass) do(what string, err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("%s: %w", what, err)
	}
}

// flush lets pages be read that the kernels called so far have written: a device that can, goes on
// meanwhile.
func (p *pass) flush() error {
	if device, ok := p.device.(interface{ Flush() error }); ok {
		return device.Flush()
	}
	return p.device.Sync()
}

// forward is the transformer. Where no row of the batch needs logits, the last layer ends with its
// keys and values, and there is neither a final norm nor a head.
func (p *pass) forward(b *batch.Batch) {
	w := p.weights
	p.embed()
	for i := range w.layers {
		p.appendKV(i)
		if b.LayerDone != nil {
			p.do("flush", p.flush())
		}
		if p.err != nil {
			p.err = fmt.Errorf("layer %d: %w", i, p.err)
			return
		}
		if b.LayerDone != nil {
			b.LayerDone(i)
		}
		attended := p.s.x
		if i < len(w.layers)-1 {
			p.attend(i)
		} else if len(p.s.wanted) == 0 {
			return
		} else {
			p.s.dropUnwanted(b)
			p.attend(i)
			attended = p.keepWanted()
		}
		p.finishLayer(i, attended)
	}
	p.head()
}

// appendKV computes queries, keys and values of a layer and puts the latter two into their slots.
func (p *pass) appendKV(i int) {
	l, c, s := &p.weights.layers[i], p.config, p.s
	p.norm(l.attentionNorm, s.x, p.hidden)
	p.matmul(l.qkv, s.qkv, s.x, false)
	p.headNorm(l.queryNorm, 0, c.Heads)
	p.headNorm(l.keyNorm, c.Heads, c.KVHeads)
	p.do("rope", p.device.RopeAppend(gpu.RopeArgs{
		QKV: s.qkv, KV: p.m.kv.kv, Layer: i, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Positions: s.positions, Slots: s.slots, Rope: l.rope,
	}))
}

// headNorm norms the heads from first on, each for itself, where the family does so.
func (p *pass) headNorm(n norm, first, heads int) {
	if !n.exists() {
		return
	}
	c := p.config
	p.do("head norm", p.device.Norm(gpu.NormArgs{
		Dst: p.s.qkv, X: p.s.qkv, Weight: n.weight, Rows: p.rows, Dim: n.dim, Groups: heads,
		Stride: (c.Heads + 2*c.KVHeads) * c.HeadDim, Offset: first * c.HeadDim,
		Eps: n.eps, WeightOffset: n.offset,
	}))
}

// attend leaves the attention of a layer in x.
func (p *pass) attend(i int) {
	l, c := &p.weights.layers[i], p.config
	p.do("attention", p.device.Attention(gpu.AttentionArgs{
		Dst: p.s.x, QKV: p.s.qkv, KV: p.m.kv.kv, Layer: i, Heads: c.Heads, KVHeads: c.KVHeads,
		HeadDim: c.HeadDim, Scale: l.scale, Cap: l.scoreCap, Window: l.window, Sinks: l.sinks,
		Sequences: p.s.sequences,
	}))
}

// keepWanted leaves only the rows with logits in the residual stream, and returns the attention's
// result for them.
func (p *pass) keepWanted() (attended gpu.Buffer) {
	s, c := p.s, p.config
	if len(s.wanted) == p.rows {
		return s.x
	}
	p.do("gather", p.device.Gather(s.narrow, p.hidden, s.wanted, c.Hidden))
	p.do("gather", p.device.Gather(s.mlp, s.x, s.wanted, c.Heads*c.HeadDim))
	p.hidden, p.rows = s.narrow, len(s.wanted)
	return s.mlp
}

// finishLayer adds the attention and the feed-forward part to the residual stream.
func (p *pass) finishLayer(i int, attended gpu.Buffer) {
	l, s := &p.weights.layers[i], p.s
	p.add(l.out, l.outNorm, attended)
	p.norm(l.mlpNorm, s.x, p.hidden)
	if len(l.experts) > 0 {
		p.mixture(l)
		return
	}
	p.gate(l, l.mlp, s.x)
	p.add(l.mlp.down, l.downNorm, s.mlp)
}

// gate leaves activation(gate) * up of rows of x in mlp.
func (p *pass) gate(l *layer, m mlp, x gpu.Buffer) {
	product := gpu.MatMulArgs{Dst: p.s.gateUp, X: x, W: m.gateUp.w, Rows: p.rows,
		Bias: m.gateUp.bias}
	glu := gpu.GLUArgs{Dst: p.s.mlp, GateUp: p.s.gateUp, Rows: p.rows,
		Width: p.config.Intermediate, Activation: l.activation}
	if d, ok := p.device.(gpu.Gater); ok {
		p.do("gated matmul", d.MatMulGLU(product, glu))
		return
	}
	p.do("matmul", p.device.MatMul(product))
	p.do("glu", p.device.GLU(glu))
}

// add adds a projection of x to the residual stream: straight into its sums, or through a norm and
// gateUp, which is free at both of its calls.
func (p *pass) add(l linear, n norm, x gpu.Buffer) {
	if !n.exists() {
		p.matmul(l, p.hidden, x, true)
		return
	}
	p.matmul(l, p.s.gateUp, x, false)
	p.do("norm", p.device.Norm(gpu.NormArgs{Dst: p.hidden, X: p.s.gateUp, Weight: n.weight,
		Rows: p.rows, Dim: n.dim, Eps: n.eps, WeightOffset: n.offset, Accumulate: true}))
}

func (p *pass) norm(n norm, dst, x gpu.Buffer) {
	p.do("norm", p.device.Norm(gpu.NormArgs{Dst: dst, X: x, Weight: n.weight, Rows: p.rows,
		Dim: n.dim, Eps: n.eps, WeightOffset: n.offset}))
}

func (p *pass) matmul(l linear, dst, x gpu.Buffer, accumulate bool) {
	p.do("matmul", p.device.MatMul(gpu.MatMulArgs{Dst: dst, X: x, W: l.w, Rows: p.rows,
		Bias: l.bias, Accumulate: accumulate}))
}

// head computes the logits of the rows under way, which are the wanted ones, headRows at a time,
// and copies them to the host where nobody chooses from them on the device.
func (p *pass) head() {
	s, width, total := p.s, p.config.Vocabulary, p.rows
	s.host = slices.Grow(s.host[:0], total*width)[:total*width]
	s.rows = s.rows[:0]
	for from := 0; from < total; from += headRows {
		p.rows = min(headRows, total-from)
		x := p.hidden
		if total > headRows {
			s.block = s.block[:0]
			for r := range p.rows {
				s.block = append(s.block, int32(from+r))
			}
			x = s.x
			p.do("gather", p.device.Gather(x, p.hidden, s.block, p.config.Hidden))
		}
		p.norm(p.weights.finalNorm, s.x, x)
		p.matmul(p.weights.head, s.logits, s.x, false)
		p.choose(from)
		p.readLogits(from)
	}
}

// capLogits bounds logits softly where the family does: cap·tanh(x/cap).
func (b *blueprint) capLogits(logits []float32) {
	if b.logitCap == 0 {
		return
	}
	for i, x := range logits {
		grown := power(math.E, float64(2*x/b.logitCap))
		logits[i] = b.logitCap * float32(1-2/(grown+1))
	}
}
