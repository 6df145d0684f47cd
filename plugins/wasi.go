package plugins

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kvrelay/engine/abi"
)

// The error numbers of WASI that guests see.
const (
	wasiOK     = 0
	wasiEBADF  = 8
	wasiEFAULT = 21
	wasiEINVAL = 28
	wasiENOSYS = 52
)

// maxPieces bounds the pieces of one fd_write.
const maxPieces = 64

// wasiCall is a function of WASI: it returns an error number.
type wasiCall func(s *sandbox, m api.Module, stack []uint64) uint32

// wasi is the part of WASI that the runtime of a language needs to start. What it says of the world
// follows from the step and the settings, so that a module decides the same again.
func wasi() []hostFunction {
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	one, two := []api.ValueType{i32}, []api.ValueType{i32, i32}
	three, four := []api.ValueType{i32, i32, i32}, []api.ValueType{i32, i32, i32, i32}
	long := []api.ValueType{i32, i64, i32}
	longer := []api.ValueType{i32, i64, i32, i32}
	list := []hostFunction{{module: abi.ModuleWasiSnapshotPreview1, name: abi.ImportProcExit,
		params: one, call: wasiExit}}
	add := func(name string, params []api.ValueType, call wasiCall) {
		list = append(list, hostFunction{abi.ModuleWasiSnapshotPreview1, name, params, one,
			func(s *sandbox, m api.Module, stack []uint64) {
				stack[0] = uint64(call(s, m, stack))
			}})
	}
	add(abi.ImportArgsSizesGet, two, wasiNone)
	add(abi.ImportArgsGet, two, wasiAnswer(wasiOK))
	add(abi.ImportEnvironSizesGet, two, wasiNone)
	add(abi.ImportEnvironGet, two, wasiAnswer(wasiOK))
	add(abi.ImportClockTimeGet, long, wasiClock)
	add(abi.ImportClockResGet, two, wasiResolution)
	add(abi.ImportRandomGet, two, wasiRandom)
	add(abi.ImportSchedYield, nil, wasiYield)
	add(abi.ImportFdWrite, four, wasiWrite)
	add(abi.ImportFdClose, one, wasiAnswer(wasiENOSYS))
	add(abi.ImportFdFdstatGet, two, wasiAnswer(wasiENOSYS))
	add(abi.ImportFdFdstatSetFlags, two, wasiAnswer(wasiENOSYS))
	add(abi.ImportFdPrestatGet, two, wasiAnswer(wasiEBADF))
	add(abi.ImportFdPrestatDirName, three, wasiAnswer(wasiEBADF))
	add(abi.ImportFdRead, four, wasiAnswer(wasiENOSYS))
	add(abi.ImportFdSeek, longer, wasiAnswer(wasiENOSYS))
	add(abi.ImportFdFilestatGet, two, wasiAnswer(wasiENOSYS))
	add(abi.ImportPollOneoff, four, wasiAnswer(wasiENOSYS))
	return list
}

func wasiAnswer(errno uint32) wasiCall {
	return func(*sandbox, api.Module, []uint64) uint32 { return errno }
}

func wasiYield(*sandbox, api.Module, []uint64) uint32 { return wasiOK }

// wasiNone says that a list has no entries and takes no bytes.
func wasiNone(_ *sandbox, m api.Module, stack []uint64) uint32 {
	memory := m.Memory()
	if !memory.WriteUint32Le(uint32(stack[0]), 0) || !memory.WriteUint32Le(uint32(stack[1]), 0) {
		return wasiEFAULT
	}
	return wasiOK
}

// wasiClock writes the step's time, whatever the clock and the precision. It is never 0, not even
// before the first step: Go's runtime takes a clock at 0 for a broken one.
func wasiClock(s *sandbox, m api.Module, stack []uint64) uint32 {
	if !m.Memory().WriteUint64Le(uint32(stack[2]), uint64(max(s.console.now, 1))) {
		return wasiEFAULT
	}
	return wasiOK
}

func wasiResolution(_ *sandbox, m api.Module, stack []uint64) uint32 {
	if !m.Memory().WriteUint64Le(uint32(stack[1]), 1) {
		return wasiEFAULT
	}
	return wasiOK
}

// wasiRandom fills a buffer from the sandbox's stream; a byte costs one unit of fuel.
func wasiRandom(s *sandbox, m api.Module, stack []uint64) uint32 {
	buffer, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	if !ok {
		return wasiEFAULT
	}
	charge(m, int64(len(buffer)))
	_, _ = s.console.wake(s.g.config).Read(buffer) // It never fails.
	return wasiOK
}

// wasiExit ends the call as a fault; the guest does not go on.
func wasiExit(_ *sandbox, _ api.Module, stack []uint64) {
	panic(sys.NewExitError(uint32(stack[0])))
}

// wasiWrite is fd_write: pieces of text at addresses, to the log line by line.
func wasiWrite(s *sandbox, m api.Module, stack []uint64) uint32 {
	fd, list, count := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	if fd != 1 && fd != 2 {
		return wasiEBADF
	}
	if count > maxPieces {
		return wasiEINVAL
	}
	written := uint32(0)
	for i := range count {
		piece, ok := m.Memory().Read(list+8*i, 8)
		if !ok {
			return wasiEFAULT
		}
		at, size := binary.LittleEndian.Uint32(piece), binary.LittleEndian.Uint32(piece[4:])
		text, ok := m.Memory().Read(at, size)
		if !ok {
			return wasiEFAULT
		}
		charge(m, int64(size))
		s.console.write(s.g.lines, fd, text)
		written += size
	}
	if !m.Memory().WriteUint32Le(uint32(stack[3]), written) {
		return wasiEFAULT
	}
	return wasiOK
}

// console is what a sandbox knows of the world through WASI, and what it says to it.
type console struct {
	now    int64 // of the step, nanoseconds
	chance *rand.ChaCha8
	lines  [2][]byte // begun and not ended, of descriptors 1 and 2
	said   string    // the first line written to descriptor 2 in this step
}

// wake returns the stream of random bytes, which follows from the settings alone.
func (c *console) wake(config []byte) *rand.ChaCha8 {
	if c.chance == nil {
		c.chance = rand.NewChaCha8(sha256.Sum256(config))
	}
	return c.chance
}

// begin starts a step.
func (c *console) begin(now int64) { c.now, c.said = now, "" }

// write takes text for a descriptor: whole lines are logged, the rest waits for its end. What is
// longer than a line may be is cut.
func (c *console) write(log *lines, fd uint32, text []byte) {
	line := &c.lines[fd-1]
	for _, b := range text {
		if b != '\n' {
			if len(*line) < abi.LimitLogLineBytes {
				*line = append(*line, b)
			}
			continue
		}
		if words := strings.ToValidUTF8(string(*line), "\uFFFD"); words != "" {
			if fd == 2 && c.said == "" {
				c.said = words
			}
			log.write(abi.LogInfo+int32(fd-1), words)
		}
		*line = (*line)[:0]
	}
}
