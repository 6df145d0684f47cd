package lint

// Name is a function's name from the module's name section: for people who read traces.
type Name struct {
	Function uint32
	Name     string
}

// Bounds of what is read from a name section. What is larger is ignored, not refused: a custom
// section never makes a module invalid.
const (
	maxNames     = 20000
	maxNameBytes = 512
)

// functionNames reads the payload of a name section, behind its own name. Anything malformed,
// out of range or out of order ends the list.
func functionNames(payload []byte, functions int) []Name {
	r := &reader{data: payload, fail: func(Code, int, string, ...any) {}}
	for r.left() > 0 {
		id := r.u8()
		body := r.bytes(r.u32())
		if id == 1 && !r.failed {
			return nameMap(body, functions)
		}
	}
	return nil
}

func nameMap(payload []byte, functions int) []Name {
	r := &reader{data: payload, fail: func(Code, int, string, ...any) {}}
	n := r.count("names", maxNames, 2)
	names := make([]Name, 0, n)
	next := 0
	for range n {
		i := r.index("function", functions)
		name := r.name(maxNameBytes)
		if r.failed || int(i) < next {
			break
		}
		next = int(i) + 1
		names = append(names, Name{Function: i, Name: name})
	}
	return names
}
