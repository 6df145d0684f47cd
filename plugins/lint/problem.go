package lint

import "fmt"

// Code names a kind of problem. It never changes meaning, so that it can be searched for.
type Code string

// The codes of what a module can be refused for by its bytes alone.
const (
	NotAModule    Code = "P001" // no preamble, or an unknown version
	Component     Code = "P002" // a component, not a core module
	Malformed     Code = "P003" // breaks the binary format
	Unsupported   Code = "P004" // needs a feature outside WebAssembly 2.0
	BadIndex      Code = "P005" // an index points outside its space
	ModuleSize    Code = "P010" // the file is too large
	TooMany       Code = "P011" // more of something than the limit
	BodySize      Code = "P012" // a function's code is too large
	TooManyLocals Code = "P013" // a function has too many locals
	BadImport     Code = "P015" // something other than a function is imported
	BadSignature  Code = "P016" // a type has too many parameters or results
	TooComplex    Code = "P017" // nested too deep, or too many branches in one function
	MemorySize    Code = "P018" // the memory begins too large
	TableSize     Code = "P020" // a table is too large
	OpenTable     Code = "P021" // a table without maximum that the module grows
	BadExport     Code = "P022" // an export's name clashes or is reserved
	BadStart      Code = "P023" // the start function has parameters or results
)

// ReservedExport begins the names that the host adds to a module. A guest may not use them.
const ReservedExport = "__engine_"

// Problem is one reason to refuse a module.
type Problem struct {
	Code     Code
	Offset   int    // where in the file, in bytes
	Function int    // index of the function whose code it is in, -1 outside code
	Name     string // that function's name, if the module carries one
	Message  string // what is wrong, and the limit where there is one
}

// Error says all of it on one line.
func (p Problem) Error() string {
	where := fmt.Sprintf("at byte %#x", p.Offset)
	if p.Function >= 0 {
		where = fmt.Sprintf("in function %d at byte %#x", p.Function, p.Offset)
		if p.Name != "" {
			where = fmt.Sprintf("in function %d (%s) at byte %#x", p.Function, p.Name, p.Offset)
		}
	}
	return fmt.Sprintf("%s: %s (%s)", p.Code, p.Message, where)
}
