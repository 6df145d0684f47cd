package model

import (
	"fmt"
	"hash"
	"io"

	"github.com/kvrelay/engine/gpu"
)

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
func hashTensor(h hash.Hash, t stored, data []byte) {
	fmt.Fprintf(h, "%q %s %v %d\n", t.name, t.format, t.shape, len(data))
	if len(data) <= wholeTensor {
		h.Write(data)
		return
	}
	step := (len(data) - sampleBytes) / (samples - 1)
	for i := range samples {
		h.Write(data[i*step:][:sampleBytes])
	}
}

// hashBlueprint adds what the weights do not show: numbers that change the computation.
func hashBlueprint(w io.Writer, b *blueprint, to *gpu.DType) {
	fmt.Fprintf(w, "%s %g %v %d\n", b.Architecture, b.embedScale, b.finalNorm, b.Chosen)
	if to != nil {
		fmt.Fprintf(w, "as %v\n", *to)
	}
	if b.logitCap > 0 {
		fmt.Fprintln(w, "caps", b.logitCap, b.layers[0].scoreCap)
	}
	for _, l := range b.layers {
		fmt.Fprintln(w, l.rope.Freqs, l.rope.Scale, l.scale, l.window, l.sinks, l.activation,
			l.attentionNorm, l.queryNorm, l.keyNorm, l.outNorm, l.mlpNorm, l.downNorm)
	}
}
