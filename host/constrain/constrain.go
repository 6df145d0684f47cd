// Package constrain keeps an output within a form: any JSON object, a JSON Schema, or calls of
// tools. A form is compiled into an automaton over bytes with a stack (schema.go, graph.go), which
// runs over the tokens of a vocabulary and says which may come next (machine.go, mask.go).
//
// What always holds:
//
//  1. Whatever is generated under the masks, to its end, is valid JSON that fits the form, without
//     white space that the form does not write itself.
//  2. A mask is never empty, as long as the output may still have State.Least tokens.
//  3. What the compiler does not understand is an error with its place, before anything is
//     generated. What it generates may be narrower than what a schema allows, never wider.
package constrain

import "fmt"

// SchemaError says which keyword of a schema cannot be followed, and where it stands.
type SchemaError struct {
	// Pointer is the JSON pointer of the schema that holds the keyword; "" is the root.
	Pointer string
	Keyword string
	Reason  string
}

func (e *SchemaError) Error() string {
	at := e.Pointer
	if at == "" {
		at = "the root"
	}
	return fmt.Sprintf("keyword %q at %s: %s", e.Keyword, at, e.Reason)
}

// Bounds of what is compiled and kept.
const (
	maxVertices  = 1 << 17 // of one automaton
	maxNesting   = 64      // of a schema
	maxNodes     = 1 << 15 // values in one schema
	maxMerged    = 1024    // merges in one schema, by allOf, anyOf and $ref with siblings
	maxPlaces    = 128     // of a state
	maxStates    = 1 << 12 // states of a machine before it forgets them
	maxMaskBytes = 4 << 20 // of a machine's masks before it forgets them
)
