package model

import (
	"errors"
	"io/fs"
)

// Layout is what a folder's configuration says, in the terms of other file formats.
type Layout struct {
	Config
	Theta      float64 // base of the rotation
	LocalTheta float64 // and of that in sliding layers, where it is another one; else 0
	// Factors divide the frequencies of the rotation; nil when none is scaled.
	Factors []float64
	Rotated int     // dimensions of a head that turn
	Sliding []bool  // by layer: it has the window
	Scale   float32 // multiplies scores
	// ScoreCap and LogitCap are the soft bounds of scores and logits; 0: none.
	ScoreCap, LogitCap float32
	Eps                float32
	NormOffset         float32 // is added to the weights of norms
	Tensors            []TensorLayout
}

// TensorLayout is one tensor of the folder: two numbers for a matrix, one for a vector.
type TensorLayout struct {
	Name  string
	Shape []int
}

// ReadLayout reads config.json. A scaling of the rotation that also scales scores (YaRN) is
// refused: it cannot be said by factors.
func ReadLayout(files fs.FS) (*Layout, error) {
	b, err := readBlueprint(files)
	if err != nil {
		return nil, err
	}
	l := &Layout{Config: b.Config, Theta: b.theta, LocalTheta: b.localTheta,
		Eps: b.finalNorm.eps, NormOffset: b.finalNorm.offset, Scale: b.layers[0].scale,
		ScoreCap: b.layers[0].scoreCap, LogitCap: b.logitCap}
	last := b.layers[len(b.layers)-1].rope
	for i := range b.layers {
		l.Sliding = append(l.Sliding, b.layers[i].window > 0)
		if b.localTheta == 0 || b.layers[i].window == 0 {
			last = b.layers[i].rope
		}
	}
	if last.Scale != 1 {
		return nil, errors.New("its rotation scales scores too (YaRN), which is not written")
	}
	l.Rotated = 2 * len(last.Freqs)
	scaled := false
	for i, f := range last.Freqs {
		factor := power(b.theta, -2*float64(i)/float64(l.Rotated)) / f
		l.Factors = append(l.Factors, factor)
		scaled = scaled || factor != 1
	}
	if !scaled {
		l.Factors = nil
	}
	b.tensors(func(name string, shape ...int) {
		l.Tensors = append(l.Tensors, TensorLayout{name, shape})
	})
	return l, nil
}
