package plugins

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/fuel"
	"github.com/kvrelay/engine/plugins/lint"
)

// hostFunction is a function that guests may import. It gets the sandbox that calls.
type hostFunction struct {
	module, name    string
	params, results []api.ValueType
	call            func(s *sandbox, m api.Module, stack []uint64)
}

// offered lists all of them.
func offered() []hostFunction {
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	return append([]hostFunction{
		{abi.ModulePol, abi.ImportLog, []api.ValueType{i32, i32, i32}, nil, hostLog},
		{abi.ModulePol, abi.ImportLogLevel, nil, []api.ValueType{i32}, hostLogLevel},
		{abi.ModulePol, abi.ImportGranted, nil, []api.ValueType{i64}, hostGranted},
		{abi.ModuleEnv, abi.ImportAbort, []api.ValueType{i32, i32, i32, i32}, nil, hostAbort},
	}, wasi()...)
}

// signature is the function's type in the lint's words.
func (f hostFunction) signature() lint.FuncType {
	var t lint.FuncType
	for _, p := range f.params {
		t.Params = append(t.Params, lint.ValueType(p))
	}
	for _, r := range f.results {
		t.Results = append(t.Results, lint.ValueType(r))
	}
	return t
}

// hostCallFuel is what a call of the host costs; the bytes of a line cost one each on top.
const hostCallFuel = 500

// charge takes fuel for work that the host does for the guest. The guest's next charge traps if
// there is not so much.
func charge(m api.Module, cost int64) {
	if g, ok := m.ExportedGlobal(fuel.Export).(api.MutableGlobal); ok {
		g.Set(uint64(int64(g.Get()) - cost))
	}
}

// link makes the host modules of a runtime, only those that the guest imports from.
func (g *generation) link(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, i := range g.module.Imports {
		wanted[i.Module] = true
	}
	for name := range wanted {
		b := g.runtime.NewHostModuleBuilder(name)
		for _, f := range offered() {
			if f.module != name {
				continue
			}
			run := api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
				charge(m, hostCallFuel)
				f.call(g.sandbox(m.Name()), m, stack)
			})
			b = b.NewFunctionBuilder().WithGoModuleFunction(run, f.params, f.results).Export(f.name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("making the imports of %q: %w", name, err)
		}
	}
	return nil
}

// hostLog is pol_v1.log: level, address, length.
func hostLog(s *sandbox, m api.Module, stack []uint64) {
	level, at, size := int32(stack[0]), uint32(stack[1]), uint32(stack[2])
	size = min(size, abi.LimitLogLineBytes)
	line, ok := m.Memory().Read(at, size)
	if !ok {
		panic(fmt.Errorf("log: %d bytes at %#x lie outside the memory", size, at))
	}
	charge(m, int64(size))
	s.g.lines.write(level, strings.ToValidUTF8(string(line), "\uFFFD"))
}

// hostLogLevel is pol_v1.log_level.
func hostLogLevel(s *sandbox, _ api.Module, stack []uint64) {
	stack[0] = uint64(uint32(s.level))
}

// hostGranted is pol_v1.granted.
func hostGranted(s *sandbox, _ api.Module, stack []uint64) { stack[0] = s.granted }

// hostAbort is env.abort of AssemblyScript: message, file, line, column. It never returns.
func hostAbort(s *sandbox, m api.Module, stack []uint64) {
	s.complaint = fmt.Sprintf("%s (%s:%d:%d)", utf16At(m, uint32(stack[0])),
		utf16At(m, uint32(stack[1])), uint32(stack[2]), uint32(stack[3]))
	panic(fmt.Errorf("abort"))
}

// maxAbort is how many UTF-16 units of an AssemblyScript string are shown.
const maxAbort = 256

// utf16At reads a string of AssemblyScript: UTF-16, its length in bytes in the four bytes before.
func utf16At(m api.Module, at uint32) string {
	if at < 4 {
		return ""
	}
	size, ok := m.Memory().ReadUint32Le(at - 4)
	if !ok {
		return ""
	}
	size = min(size, 2*maxAbort) &^ 1
	b, ok := m.Memory().Read(at, size)
	if !ok {
		return ""
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
