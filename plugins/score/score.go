// Package score makes policies of expressions: an operator who writes no code gives one line, such
// as
//
//	score = "remaining_prefill - 200*age_s - 1000*priority"
//	chunk = "min(1024, budget)"
//
// and the smallest score runs first. The expressions become a module of the same ABI as any other,
// which runs in the same sandbox under the same rules.
//
// An expression has the grammar of Go's and is computed in 64-bit floating point. Its words are the
// fields of a request and of the step's header by their names in SPEC.md, and age_s, deadline_s,
// budget, waiting. A comparison is 1 or 0; what is not 0 is true. Not a number is a score behind
// all
// others, and no chunk.
package score

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
)

// Source is what the operator wrote.
type Source struct {
	Name  string // of the policy
	Score string
	Chunk string // "" : as long as it fits
}

// Error points at what is wrong in an expression.
type Error struct {
	Key    string // score or chunk
	Text   string // the expression
	Offset int    // byte of it
	Length int    // bytes, at least 1
	Why    string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s, character %d: %s", e.Key, len([]rune(e.Text[:e.Offset]))+1, e.Why)
}

// Caret is the expression, and below it a mark under what is wrong.
func (e *Error) Caret() string {
	end := min(e.Offset+e.Length, len(e.Text))
	under := max(1, len([]rune(e.Text[min(e.Offset, end):end])))
	return e.Text + "\n" + strings.Repeat(" ", len([]rune(e.Text[:e.Offset]))) +
		strings.Repeat("^", under)
}

// Fuel is what one decision may use on a table of that many slots: all of it is scored in each
// step.
func Fuel(slots int) int64 { return 2_000_000 + 8_000*int64(slots) }

//go:embed template.wasm
var template []byte

// maxName bounds a name, in bytes: what is longer is cut.
const maxName = 64

// Compile makes the module. The error is an *Error.
func Compile(s Source) ([]byte, error) {
	score, err := compile("score", s.Score)
	if err != nil {
		return nil, err
	}
	bodies := [][]byte{score}
	if s.Chunk != "" {
		chunk, err := compile("chunk", s.Chunk)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, chunk)
	}
	module := splice(template, bodies)
	return named(module, s.Name), nil
}

// named writes the name over the placeholder, and its length into the descriptor.
func named(module []byte, name string) []byte {
	room := bytes.Index(module, bytes.Repeat([]byte("N"), maxName))
	length := bytes.Index(module, []byte("POL1")) + 36
	if room < 0 || length < 36 {
		panic("score: the template has no name")
	}
	module[length] = byte(copy(module[room:room+maxName], name))
	return module
}
