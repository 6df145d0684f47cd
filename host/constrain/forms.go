package constrain

import (
	"errors"
	"fmt"
)

// Object is the form of any JSON object.
func Object(v *Vocabulary) (*Form, error) {
	g := newGraph(v)
	g.start = g.vertex()
	to := g.vertex()
	g.call(g.start, to, g.anyObject())
	return g.form(to)
}

// Schema is the form of the values that a JSON Schema allows. An error is a *SchemaError.
func Schema(schema []byte, v *Vocabulary) (*Form, error) {
	g := newGraph(v)
	g.start = g.vertex()
	to, err := g.schema(g.start, schema, "")
	if err != nil {
		return nil, err
	}
	return g.form(to)
}

// schema appends a value of a schema. prefix tells its rules apart from those of other schemas.
func (g *graph) schema(from int, schema []byte, prefix string) (int, error) {
	root, err := readNode(schema, "")
	if err != nil {
		if e, ok := errors.AsType[*SchemaError](err); ok {
			return 0, e
		}
		return 0, &SchemaError{Reason: err.Error()}
	}
	return compileSchema(g, from, root, prefix)
}

// Calls describes calls of tools as an output writes them: Open, a call, and after each Close
// either the end or Between and another call. A call is Name, the tool's name, Arguments, its
// arguments as JSON, and Tail.
type Calls struct {
	Open, Close, Between  string
	Name, Arguments, Tail string
	Tools                 []Tool
	// Many allows more than one call.
	Many bool
}

// Tool is a tool that may be called. Parameters is the schema of its arguments; nil is any object.
type Tool struct {
	Name       string
	Parameters []byte
}

// ToolError says that the parameters of a tool cannot be followed.
type ToolError struct {
	// Tool is the index in Calls.Tools.
	Tool int
	Err  error
}

func (e *ToolError) Error() string { return e.Err.Error() }

// Unwrap returns the *SchemaError.
func (e *ToolError) Unwrap() error { return e.Err }

// Form compiles the calls. An error is a *ToolError around a *SchemaError.
func (c Calls) Form(v *Vocabulary) (*Form, error) {
	g := newGraph(v)
	g.start = g.vertex()
	begin := g.behind(g.literal(g.start, c.Open))
	after := g.vertex()
	for i, tool := range c.Tools {
		at := g.literal(g.behind(begin), c.Name+inString(tool.Name)+c.Arguments)
		parameters := tool.Parameters
		if parameters == nil {
			parameters = []byte(`{"type":"object"}`)
		}
		end, err := g.schema(at, parameters, fmt.Sprintf("%d/", i))
		if err != nil {
			return nil, &ToolError{i, err}
		}
		g.skip(g.literal(end, c.Tail), after)
	}
	if c.Many {
		g.skip(g.literal(after, c.Between), begin)
	}
	return g.form(g.literal(after, c.Close))
}

// Size is the number of vertices of the form's automaton, of some 200 bytes each.
func (f *Form) Size() int { return len(f.graph.vertices) }

// inString is a text inside a JSON string.
func inString(s string) string {
	text := quote(s)
	return text[1 : len(text)-1]
}

// form finishes the graph.
func (g *graph) form(end int) (*Form, error) {
	g.vertices[end].end = true
	g.measure()
	f := newForm(g)
	if f.start.least >= unreachable {
		return nil, &SchemaError{Reason: "no output of this model can have that form, or none " +
			"that is finite"}
	}
	return f, nil
}
