package gguf

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Naming turns a folder's names of tensors into a file's.
type Naming struct {
	Architecture string // of general.architecture
	of           family
	outer, inner map[string]string
}

// NamingOf is that of a Hugging Face class.
func NamingOf(class string) (*Naming, error) {
	n := &Naming{outer: map[string]string{}, inner: map[string]string{}}
	switch class {
	case "MistralForCausalLM", "MixtralForCausalLM":
		n.Architecture = "llama"
	}
	for name, of := range families {
		if of.class == class {
			n.Architecture = name
		}
	}
	if n.Architecture == "" {
		return nil, fmt.Errorf("%s has no GGUF architecture", class)
	}
	n.of = families[n.Architecture]
	for file, folder := range outer {
		n.outer[folder] = file
	}
	for file, folder := range inner {
		n.inner[folder] = file
	}
	for file, folder := range n.of.names {
		n.inner[folder] = file
	}
	return n, nil
}

// Expert is where a tensor of one expert goes: into the file's tensor of all experts.
type Expert struct {
	Number int
	Name   string // of the file's tensor
}

var (
	folderLayer  = regexp.MustCompile(`^model\.layers\.(\d+)\.(.*)\.(weight|bias)$`)
	folderExpert = regexp.MustCompile(`^block_sparse_moe\.experts\.(\d+)\.(w[123])$`)
)

// Name is what the file calls a tensor of the folder; of one expert's, where it goes.
func (n *Naming) Name(folder string) (name string, expert *Expert, err error) {
	if file, ok := n.outer[folder]; ok {
		return file, nil, nil
	}
	m := folderLayer.FindStringSubmatch(folder)
	if m == nil {
		return "", nil, fmt.Errorf("tensor %q has no name in GGUF", folder)
	}
	block := "blk." + m[1] + "."
	if e := folderExpert.FindStringSubmatch(m[2]); e != nil {
		expert = &Expert{}
		if _, err := fmt.Sscan(e[1], &expert.Number); err != nil {
			return "", nil, fmt.Errorf("tensor %q: %w", folder, err)
		}
		for file, own := range experts {
			if own == e[2] {
				expert.Name = block + file + "." + m[3]
			}
		}
		return expert.Name, expert, nil
	}
	file, ok := n.inner[m[2]]
	if !ok {
		return "", nil, fmt.Errorf("tensor %q has no name in GGUF", folder)
	}
	return block + file + "." + m[3], nil, nil
}

// Turned says whether the rows of a file's tensor are in the order for a rotation of adjacent
// pairs, and of how many heads each.
func (n *Naming) Turned(file string, heads, keyHeads int) int {
	switch {
	case !n.of.turned:
	case strings.Contains(file, ".attn_q."):
		return heads
	case strings.Contains(file, ".attn_k."):
		return keyHeads
	}
	return 0
}

// Turn brings the rows of queries or keys into that order: the inverse of what Weights does.
func Turn(data []byte, rows, heads int) []byte {
	width, half := len(data)/rows, rows/heads/2
	out := make([]byte, 0, len(data))
	for row := range rows {
		head, at := row/(2*half), row%(2*half)
		from := 2*half*head + at%2*half + at/2
		out = append(out, data[from*width:][:width]...)
	}
	return out
}

// PreName is what tokenizer.ggml.pre calls a pre-tokenizer: by the pattern it splits with, or for
// "" GPT-2's own; digits says that each is alone, whole that a word that is a token stays.
func PreName(pattern string, digits, whole bool) (string, bool) {
	switch {
	case pattern == "" && !digits:
		return "gpt-2", true
	case pattern == "":
		return "smollm", true
	case pattern == llama3Words && !digits:
		return cmp.Or(map[bool]string{true: "llama-bpe"}[whole], "smaug-bpe"), true
	case pattern == qwen2Words && !digits:
		return "qwen2", true
	}
	return "", false
}
