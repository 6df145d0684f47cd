package lint

// ValueType is one of WebAssembly's types, as the binary format writes it.
type ValueType byte

// The value types of WebAssembly 2.0.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// String is the type's name in the text format.
func (t ValueType) String() string {
	names := map[ValueType]string{I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128",
		FuncRef: "funcref", ExternRef: "externref"}
	return names[t]
}

// FuncType is what a function takes and gives.
type FuncType struct{ Params, Results []ValueType }

// String is the type in the text format, such as "(func (i32 i32) i32)".
func (t FuncType) String() string {
	s := "(func ("
	for i, p := range t.Params {
		if i > 0 {
			s += " "
		}
		s += p.String()
	}
	s += ")"
	for _, r := range t.Results {
		s += " " + r.String()
	}
	return s + ")"
}

// Import is a function that the module asks for.
type Import struct {
	Module, Name string
	Type         uint32 // index into Module.Types
}

// ExportKind says what an export is.
type ExportKind byte

// The kinds of exports.
const (
	ExportFunction ExportKind = iota
	ExportTable
	ExportMemory
	ExportGlobal
)

// Export is a thing that the module offers under a name.
type Export struct {
	Name  string
	Kind  ExportKind
	Index uint32
}

// Size is the initial size and the maximum of a memory, in pages, or of a table, in entries.
type Size struct {
	Min, Max uint32
	HasMax   bool
}

// Global is the type of a global that the module defines.
type Global struct {
	Type    ValueType
	Mutable bool
}

// Body is one function's code.
type Body struct {
	Locals int    // declared locals, without parameters
	Groups []byte // the declarations of locals as the file has them, without their count
	Count  int    // how many declarations Groups holds
	Code   []byte // the instructions, the last being end
	Offset int    // of the first instruction, in the file
}

// Section is a section of the file: its number and what is in it.
type Section struct {
	ID      byte
	Payload []byte
	Offset  int // of the payload, in the file
}

// The numbers of the sections that the meter touches.
const (
	SectionCustom    = 0
	SectionType      = 1
	SectionImport    = 2
	SectionFunction  = 3
	SectionTable     = 4
	SectionMemory    = 5
	SectionGlobal    = 6
	SectionExport    = 7
	SectionStart     = 8
	SectionElement   = 9
	SectionCode      = 10
	SectionData      = 11
	SectionDataCount = 12
)

// Module is a module that passed Check.
type Module struct {
	Binary    []byte    // the whole file
	Sections  []Section // in file order; custom sections included
	Types     []FuncType
	Imports   []Import
	Functions []uint32 // the type of each function that the module defines
	Tables    []Size
	Memories  []Size
	Globals   []Global
	Exports   []Export
	Bodies    []Body // one for each entry of Functions
	HasStart  bool   // a function runs when the module is instantiated
	DataCount int    // the data-count section's number, -1 without one
	Names     []Name // of functions, ascending by index; only what is well formed

	LargestBody int // bytes of the largest function's code
	Deepest     int // most open blocks in any function
}

// TypeOf returns the type of a function, imported ones counted first.
func (m *Module) TypeOf(function uint32) FuncType {
	if n := uint32(len(m.Imports)); function < n {
		return m.Types[m.Imports[function].Type]
	} else {
		return m.Types[m.Functions[function-n]]
	}
}

// Export returns the export with the given name.
func (m *Module) Export(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

// NameOf returns the name that the module's name section gives a function, "" without one.
func (m *Module) NameOf(function uint32) string {
	for _, n := range m.Names {
		if n.Function == function {
			return n.Name
		}
	}
	return ""
}
