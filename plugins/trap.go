package plugins

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/fuel"
)

// exportDecide names the call in faults.
const exportDecide = abi.ExportDecide

// lastErrorFuel is what pol_last_error may use: enough to format a line.
const lastErrorFuel = 100_000

// trapped turns an error of the runtime into a fault. What the meter stopped has used more fuel
// than there was.
func (s *sandbox) trapped(err error, call string) *Fault {
	class, detail := abi.FaultTrap, shorten(err.Error())
	var exit *sys.ExitError
	switch {
	case s.fuel != nil && int64(s.fuel.Get()) < 0:
		class, detail = abi.FaultFuel, "the fuel was used up"+frames(err.Error())
	case errors.As(err, &exit):
		class, detail = abi.FaultExit, fmt.Sprintf("the guest exited with %d", exit.ExitCode())
	case reason(err.Error()) == "stack overflow":
		class = abi.FaultStack
	}
	if s.complaint != "" {
		detail = fmt.Sprintf("abort: %s%s", s.complaint, frames(err.Error()))
	} else if words := s.lastError(class); words != "" {
		detail += ": " + words
	} else if s.console.said != "" {
		detail += ": " + s.console.said
	}
	return s.g.fault(class, call, "%s", detail)
}

// returned is the fault of a call that returned an error code.
func (s *sandbox) returned(call string, code int32) *Fault {
	detail := fmt.Sprintf("it returned %d", code)
	if name := abi.CodeName(code); name != "" {
		detail = fmt.Sprintf("it returned %d (%s)", code, name)
	}
	if words := s.lastError(abi.FaultReturnedError); words != "" {
		detail += ": " + words
	}
	f := s.g.fault(abi.FaultReturnedError, call, "%s", detail)
	f.Code = code
	return f
}

// lastError asks the guest, once and with fuel of its own, what it has to say about its failure.
// After a stack overflow or an exit it is not asked.
func (s *sandbox) lastError(class abi.FaultClass) string {
	if class == abi.FaultStack || class == abi.FaultExit || s.instance == nil {
		return ""
	}
	f := s.instance.ExportedFunction(abi.ExportLastError)
	if f == nil {
		return ""
	}
	s.fuel.Set(lastErrorFuel)
	saved := s.stack
	at, traced := s.instance.ExportedGlobal(fuel.Position).(api.MutableGlobal)
	var failure uint64
	if traced {
		failure = at.Get()
	}
	err := s.call(f)
	result := s.stack[0]
	s.stack = saved
	if traced {
		at.Set(failure) // The place that counts is that of the failure.
	}
	if err != nil {
		return ""
	}
	return s.text(uint32(result>>32), min(uint32(result), abi.LimitLastErrorBytes))
}

// text reads UTF-8 from the guest's memory, mended where it is none; "" when it lies outside.
func (s *sandbox) text(at, size uint32) string {
	b, ok := s.memory.Read(at, size)
	if !ok {
		return ""
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// shorten makes one line of the runtime's error: the reason and where it was.
func shorten(text string) string {
	return reason(text) + frames(text)
}

// reason is the first line of the runtime's error.
func reason(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(line, "wasm error: ")
}

// maxFrames is how many functions of a stack trace are named.
const maxFrames = 4

// frames names the innermost functions of the runtime's stack trace, " in a < b < c".
func frames(text string) string {
	_, trace, ok := strings.Cut(text, "wasm stack trace:\n")
	if !ok {
		return ""
	}
	var names []string
	for line := range strings.Lines(trace) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "(")
		_, name, _ = strings.Cut(name, ".") // the module's name is ours
		if name == "" || len(names) == maxFrames {
			break
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return " in " + strings.Join(names, " < ")
}
