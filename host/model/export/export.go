// Package export writes a Hugging Face folder as one GGUF file, its matrices quantised: what
// `engine quantize` does. The file loads here and in other engines that read GGUF.
package export

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/model/quant"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// Types are those that a folder can be written in, by their names. It is never written.
var Types = map[string]gpu.DType{
	"F32": gpu.F32, "F16": gpu.F16, "BF16": gpu.BF16,
	"Q8_0": gpu.Q8_0, "Q4_0": gpu.Q4_0, "Q4_K": gpu.Q4_K,
}

// stored are the types as the file numbers them.
var stored = map[gpu.DType]gguf.Type{
	gpu.F32: gguf.F32, gpu.F16: gguf.F16, gpu.BF16: gguf.BF16,
	gpu.Q8_0: gguf.Q8_0, gpu.Q4_0: gguf.Q4_0, gpu.Q4_K: gguf.Q4_K,
}

// fileTypes are general.file_type, which says what most of the matrices are.
var fileTypes = map[gpu.DType]int{
	gpu.F32: 0, gpu.F16: 1, gpu.Q4_0: 2, gpu.Q8_0: 7, gpu.Q4_K: 14, gpu.BF16: 32,
}

// Job is one folder to write.
type Job struct {
	Files   fs.FS // its small files
	Weights *safetensors.Weights
	Name    string // general.name
	Type    gpu.DType
	// Progress hears, after each row, how many bytes of the folder's weights are written; its error
	// ends the writing. nil hears nothing.
	Progress func(done, total int64) error
}

// Report says what became of the matrices.
type Report struct {
	Tensors map[string]int // by type
}

// Write writes the folder. Vectors and the scores of experts stay F32. The embedding and the head
// of a four-bit file are Q8_0, and so is a matrix whose rows are no whole blocks of Q4_K; rows that
// are no whole blocks of 32 either stay as they are stored, F32 where they are not F16.
func Write(to io.Writer, j Job) (*Report, error) {
	layout, err := model.ReadLayout(j.Files)
	if err != nil {
		return nil, err
	}
	naming, err := gguf.NamingOf(layout.Architecture)
	if err != nil {
		return nil, err
	}
	w := &writing{Job: j, layout: layout, naming: naming, report: &Report{map[string]int{}}}
	pairs, err := w.pairs()
	if err != nil {
		return nil, err
	}
	tensors, err := w.tensors()
	if err != nil {
		return nil, err
	}
	return w.report, gguf.Write(to, pairs, tensors)
}

type writing struct {
	Job
	layout      *model.Layout
	naming      *gguf.Naming
	report      *Report
	done, total int64
}

// tensors lists what is to be written; experts of one kind come as one.
func (w *writing) tensors() ([]gguf.Out, error) {
	var out []gguf.Out
	merged := map[string]*experts{}
	for _, t := range w.layout.Tensors {
		from, ok := w.Weights.Tensor(t.Name)
		if !ok {
			return nil, fmt.Errorf("tensor %q is missing", t.Name)
		}
		if fmt.Sprint(from.Shape) != fmt.Sprint(t.Shape) || len(from.Data) == 0 {
			return nil, fmt.Errorf("tensor %q has shape %v, the configuration makes it %v",
				t.Name, from.Shape, t.Shape)
		}
		name, expert, err := w.naming.Name(t.Name)
		if err != nil {
			return nil, err
		}
		w.total += int64(len(from.Data))
		one := tensor{writing: w, name: name, from: from, to: w.typeOf(name, from)}
		if expert == nil {
			out = append(out, gguf.Out{Name: name, Type: stored[one.to], Shape: t.Shape,
				Write: one.write})
			continue
		}
		if merged[name] == nil {
			all := &experts{}
			merged[name] = all
			out = append(out, gguf.Out{Name: name, Type: stored[one.to],
				Shape: append([]int{w.layout.Experts}, t.Shape...), Write: all.write})
		}
		merged[name].list = append(merged[name].list, one)
	}
	if f := w.layout.Factors; f != nil {
		out = append(out, gguf.Out{Name: "rope_freqs.weight", Type: gguf.F32, Shape: []int{len(f)},
			Write: func(to io.Writer) error { return writeFloats(to, f) }})
	}
	for _, t := range out {
		w.report.Tensors[t.Type.String()]++
	}
	return out, nil
}

// experts are the tensors of one kind of all experts of a layer, in order.
type experts struct{ list []tensor }

func (e *experts) write(to io.Writer) error {
	for i := range e.list {
		if err := e.list[i].write(to); err != nil {
			return err
		}
	}
	return nil
}

// typeOf is the type a tensor is written in.
func (w *writing) typeOf(name string, from safetensors.Tensor) gpu.DType {
	if len(from.Shape) != 2 || isRouter(name) {
		return gpu.F32
	}
	cols, to := from.Shape[1], w.Type
	whole := name == "token_embd.weight" || name == "output.weight"
	if to == gpu.Q4_K && cols%quant.Blocks(gpu.Q4_K) != 0 || whole && to.Quantised() {
		to = gpu.Q8_0
	}
	if to.Quantised() && cols%quant.Blocks(to) != 0 {
		if to = gpu.F32; from.DType == safetensors.F16 {
			to = gpu.F16
		}
	}
	return to
}

func isRouter(name string) bool {
	const router = ".ffn_gate_inp.weight"
	return len(name) > len(router) && name[len(name)-len(router):] == router
}

// tensor is one on its way.
type tensor struct {
	*writing
	name string
	from safetensors.Tensor
	to   gpu.DType
}

// write converts row by row.
func (t *tensor) write(to io.Writer) error {
	rows, cols := 1, elements(t.from)
	if len(t.from.Shape) == 2 {
		rows, cols = t.from.Shape[0], t.from.Shape[1]
	}
	data, width := t.from.Data, t.from.DType.Bytes()*cols
	if heads := t.naming.Turned(t.name, t.layout.Heads, t.layout.KVHeads); heads > 0 {
		data = gguf.Turn(data, rows, heads)
	}
	offset := float32(0)
	if rows == 1 && isNorm(t.name) {
		offset = t.layout.NormOffset
	}
	one := safetensors.Tensor{Name: t.from.Name, DType: t.from.DType}
	var block []byte
	for row := range rows {
		one.Data = data[row*width:][:width]
		numbers, err := one.Floats()
		if err != nil {
			return err
		}
		for i := range numbers {
			numbers[i] += offset
		}
		if block, err = encode(block[:0], t.to, numbers); err != nil {
			return fmt.Errorf("tensor %q, row %d: %w", t.from.Name, row, err)
		}
		if _, err = to.Write(block); err != nil {
			return err
		}
		if t.done += int64(width); t.Progress != nil {
			if err := t.Progress(t.done, t.total); err != nil {
				return err
			}
		}
	}
	return nil
}

// isNorm says whether a file's tensor is the weight of a norm.
func isNorm(name string) bool {
	const norm = "norm.weight"
	return len(name) >= len(norm) && name[len(name)-len(norm):] == norm
}

// encode appends a row in its type. What is rounded is rounded to the nearest, ties to even.
func encode(dst []byte, to gpu.DType, row []float32) ([]byte, error) {
	le := binary.LittleEndian
	switch to {
	case gpu.F32:
		for _, x := range row {
			dst = le.AppendUint32(dst, math.Float32bits(x))
		}
	case gpu.F16:
		for _, x := range row {
			h := safetensors.ToHalf(x)
			if h&0x7fff == 0x7c00 && !math.IsInf(float64(x), 0) {
				return nil, fmt.Errorf("%g is too large for F16", x)
			}
			dst = le.AppendUint16(dst, h)
		}
	case gpu.BF16:
		for _, x := range row {
			dst = le.AppendUint16(dst, safetensors.ToBrain(x))
		}
	default:
		return quant.Quantise(dst, to, row)
	}
	return dst, nil
}

func writeFloats(to io.Writer, list []float64) error {
	var data []byte
	for _, x := range list {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
	}
	_, err := to.Write(data)
	return err
}

// elements counts the numbers of a tensor.
func elements(t safetensors.Tensor) int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
