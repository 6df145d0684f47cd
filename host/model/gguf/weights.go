package gguf

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/kvrelay/engine/host/model/mmap"
)

const embeddingName = "token_embd.weight"

// Weights are a file's tensors under the names, and in the order of rows, of the Hugging Face
// folder that it was made from.
type Weights struct {
	file    *File
	tensors map[string]source
	names   []string
}

// source is where a tensor is.
type source struct {
	Tensor
	heads int // of queries or keys whose rows are to be put back; 0: none
}

// outer are the tensors outside of the layers.
var outer = map[string]string{
	embeddingName:        "model.embed_tokens.weight",
	"output_norm.weight": "model.norm.weight",
	"output.weight":      "lm_head.weight",
}

// inner are those of a layer, without their ending. A family's own names go before.
var inner = map[string]string{
	"attn_norm":    "input_layernorm",
	"attn_q":       "self_attn.q_proj",
	"attn_k":       "self_attn.k_proj",
	"attn_v":       "self_attn.v_proj",
	"attn_qkv":     "self_attn.qkv_proj",
	"attn_q_norm":  "self_attn.q_norm",
	"attn_k_norm":  "self_attn.k_norm",
	"attn_output":  "self_attn.o_proj",
	"ffn_norm":     "post_attention_layernorm",
	"ffn_gate":     "mlp.gate_proj",
	"ffn_up":       "mlp.up_proj",
	"ffn_down":     "mlp.down_proj",
	"ffn_gate_inp": "block_sparse_moe.gate",
}

// experts are tensors of all experts of a layer, one after another.
var experts = map[string]string{
	"ffn_gate_exps": "w1",
	"ffn_down_exps": "w2",
	"ffn_up_exps":   "w3",
}

var layerName = regexp.MustCompile(`^blk\.(\d{1,5})\.([a-z_]+)\.(weight|bias)$`)

// Weights names the tensors. What is no part of the layout keeps its own name, so that whoever
// takes the weights refuses it.
func (f *File) Weights() (*Weights, error) {
	name, of, err := f.family()
	if err != nil {
		return nil, err
	}
	k := &keys{file: f}
	heads := k.count(name+".attention.head_count", 0, maxWidth)
	keyHeads := k.count(name+".attention.head_count_kv", heads, maxWidth)
	if k.err != nil {
		return nil, k.err
	}
	w := &Weights{file: f, tensors: map[string]source{}}
	for _, t := range f.Tensors {
		m := layerName.FindStringSubmatch(t.Name)
		switch {
		case t.Name == factorsName: // part of the configuration
		case outer[t.Name] != "":
			w.add(outer[t.Name], source{Tensor: t})
		case m == nil:
			w.add(t.Name, source{Tensor: t})
		case experts[m[2]] != "" && len(t.Shape) == 3:
			w.addExperts(m[1], experts[m[2]]+"."+m[3], t)
		default:
			s := source{Tensor: t}
			if of.turned && m[2] == "attn_q" {
				s.heads = heads
			} else if of.turned && m[2] == "attn_k" {
				s.heads = keyHeads
			}
			w.add(inLayer(m[1], of.rename(m[2])+"."+m[3]), s)
		}
	}
	slices.Sort(w.names)
	return w, nil
}

// rename is what a layer's tensor is called in the folder.
func (of family) rename(name string) string {
	if own, ok := of.names[name]; ok {
		return own
	}
	if common, ok := inner[name]; ok {
		return common
	}
	return name
}

// inLayer writes the layer's number as folders do: without leading zeros.
func inLayer(number, name string) string {
	n, _ := strconv.Atoi(number) // It is at most five digits.
	return fmt.Sprintf("model.layers.%d.%s", n, name)
}

func (w *Weights) add(name string, s source) {
	w.tensors[name] = s
	w.names = append(w.names, name)
}

// addExperts cuts a tensor of all experts.
func (w *Weights) addExperts(layer, name string, t Tensor) {
	size := len(t.Data) / t.Shape[0]
	for e := range t.Shape[0] {
		one := Tensor{Type: t.Type, Shape: t.Shape[1:], Data: t.Data[e*size:][:size]}
		w.add(inLayer(layer, fmt.Sprintf("block_sparse_moe.experts.%d.%s", e, name)),
			source{Tensor: one})
	}
}

// Names are those of all tensors, sorted.
func (w *Weights) Names() []string { return w.names }

// Tensor gives a tensor by its name in the folder. Its Data are as the file has them: Data gives
// them in the folder's order.
func (w *Weights) Tensor(name string) (Tensor, bool) {
	s, ok := w.tensors[name]
	s.Name = name
	return s.Tensor, ok
}

// Data are the bytes of a tensor in the order of the folder. Those whose rows are put back are a
// copy.
func (w *Weights) Data(name string) []byte {
	s := w.tensors[name]
	if s.heads > 0 {
		return s.putBack()
	}
	return s.Tensor.Data
}

// Forget lets go of the memory that a tensor's bytes take, until somebody looks at them again.
func (w *Weights) Forget(name string) {
	if w.file.mapped {
		mmap.Forget(w.tensors[name].Tensor.Data)
	}
}

// putBack undoes the reordering of the rows of queries and keys: of each head, rows (2i, 2i+1) of
// the file are rows (i, i + half) of the folder. Rows that are no whole heads stay: their shape is
// refused by whoever takes them.
func (s *source) putBack() []byte {
	rows := s.Shape[0]
	if rows%(2*s.heads) != 0 {
		return s.Data
	}
	width, half := len(s.Data)/rows, rows/s.heads/2
	out := make([]byte, 0, len(s.Data))
	for row := range rows {
		head, at := row/(2*half), row%(2*half)
		from := 2*half*head + 2*(at%half) + at/half
		out = append(out, s.Data[from*width:][:width]...)
	}
	return out
}

// Close lets go of the file.
func (w *Weights) Close() error { return w.file.Close() }
