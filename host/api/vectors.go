package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/model/safetensors"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// prompt is one prompt as the model reads it.
type prompt struct {
	ids    []int32 // with generation.Placeholder where vectors are
	embeds []generation.Embedding
}

// mixed puts the parts of a prompt one after another. What the model puts around texts stands at
// the prompt's begin alone.
func (m *Model) mixed(items []openai.Item) (p prompt, fault *openai.Error) {
	for i, item := range items {
		var ids []int32
		switch {
		case item.Embeds != "":
			var e generation.Embedding
			if e, fault = m.vectors(item); fault != nil {
				return p, fault
			}
			e.Start = len(p.ids)
			p.embeds = append(p.embeds, e)
			for range e.Rows {
				p.ids = append(p.ids, generation.Placeholder)
			}
		case item.Tokens != nil:
			ids = item.Tokens
		default:
			ids, fault = m.encode(item.Text,
				tokenizer.EncodeOptions{AddSpecial: i == 0, ParseSpecial: true})
		}
		if fault != nil {
			return p, fault
		}
		p.ids = append(p.ids, ids...)
		if len(p.ids) >= m.Context { // Before more is decoded; who generates would refuse it.
			return p, openai.Errorf(openai.CodeContextLength, "prompt", "This model's maximum "+
				"context length is %d tokens; the first %d of %d parts of the prompt have %d and "+
				"leave no room for output. Shorten the prompt.", m.Context, i+1, len(items),
				len(p.ids))
		}
	}
	return p, nil
}

// vectors decodes one part of a prompt: the base64 form of a safetensors file that holds one tensor
// of F32, F16 or BF16 [tokens, hidden], or that with a leading 1. Its values are all finite.
func (m *Model) vectors(item openai.Item) (e generation.Embedding, fault *openai.Error) {
	bad := func(format string, args ...any) (generation.Embedding, *openai.Error) {
		return e, openai.Errorf(openai.CodeInvalidValue, item.Path, "%s %s", item.Path,
			fmt.Sprintf(format, args...))
	}
	if m.Hidden == 0 {
		return e, openai.Errorf(openai.CodeUnsupportedParameter, item.Path,
			"%s: this model takes no vectors in place of tokens", item.Path)
	}
	file, err := base64.StdEncoding.Strict().DecodeString(item.Embeds)
	if err != nil {
		return bad("is not base64: %v", err)
	}
	if bytes.HasPrefix(file, []byte("PK")) || bytes.HasPrefix(file, []byte{0x80}) {
		return bad("is what torch.save writes, which could run code; send a safetensors file " +
			"with one tensor (safetensors.torch.save)")
	}
	tensors, err := safetensors.Parse(file)
	if err != nil {
		return bad("is not a safetensors file: %v", err)
	}
	if len(tensors) != 1 {
		return bad("holds %d tensors; a part of a prompt is one", len(tensors))
	}
	tensor := tensors[0]
	shape := tensor.Shape
	if len(shape) == 3 && shape[0] == 1 {
		shape = shape[1:]
	}
	if len(shape) != 2 || shape[0] < 1 || shape[1] != m.Hidden {
		return bad("has the shape %v; it must be [tokens, %d], the width of this model's hidden "+
			"state", tensor.Shape, m.Hidden)
	}
	if e.Values, err = tensor.Floats(); err != nil {
		return bad("cannot be read: %v", err)
	}
	for i, x := range e.Values {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return bad("has %v at [%d, %d]; all its numbers must be finite", x, i/m.Hidden,
				i%m.Hidden)
		}
	}
	e.Rows, e.File = shape[0], file
	e.Digest = digestOf(shape, e.Values)
	return e, nil
}

// digestOf names a tensor by its values, whatever type they were stored in.
func digestOf(shape []int, values []float32) [32]byte {
	hash := sha256.New()
	fmt.Fprintln(hash, shape)
	buffer := make([]byte, 0, 4<<10)
	for i, x := range values {
		buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		if len(buffer) == cap(buffer) || i == len(values)-1 {
			hash.Write(buffer)
			buffer = buffer[:0]
		}
	}
	return [32]byte(hash.Sum(nil))
}
