//go:build wasip1

package pol

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/kvrelay/engine/abi"
)

// module is all that a guest keeps between calls. It is a global because the host holds addresses
// into it, and it is safe because a guest is called by one thread, one call at a time.
var module struct {
	registered *Registration
	policy     Policy
	descriptor [abi.DescriptorSize]byte
	regions    [abi.BufferPeers + 1][]byte
	view       abi.View
	table      []abi.Record // A copy, for a host with larger records.
	events     []abi.Event
	message    [abi.LimitLastErrorBytes]byte
	messageLen int
}

// Register names a policy and how it is made, and makes it this module's. The last one counts.
func Register(name, version string, create New) *Registration {
	module.registered = &Registration{Name: name, Version: version, New: create}
	return module.registered
}

// address is where a byte lies in the guest's memory.
func address(p *byte) uint32 { return uint32(uintptr(unsafe.Pointer(p))) }

//go:wasmexport pol_abi_v1
func exportABI() uint32 {
	r := module.registered
	if r == nil {
		return 0
	}
	d := abi.Descriptor{
		Magic: abi.Magic, Size: abi.DescriptorSize, Minor: abi.Minor,
		Flags:        abi.DescWantsChanged | abi.DescSelects | abi.DescSetsChunks,
		CapsOptional: abi.CapChunkLengths | abi.CapLog | r.wants,
		CapsRequired: r.requires, StateVersion: r.state,
		NamePtr: address(unsafe.StringData(r.Name)), NameLen: uint32(len(r.Name)),
		VersionPtr: address(unsafe.StringData(r.Version)), VersionLen: uint32(len(r.Version)),
		RecordBytes: abi.RecordSize, HeaderBytes: abi.HeaderSize,
	}
	d.Encode(module.descriptor[:])
	return address(&module.descriptor[0])
}

//go:wasmexport pol_buffer
func exportBuffer(kind int32, size uint32) uint32 {
	if kind < 0 || kind > abi.BufferPeers || size > 1<<30 {
		return 0
	}
	if have := module.regions[kind]; have == nil || uint32(len(have)) < size {
		raw := make([]byte, size+16)
		skip := -address(&raw[0]) & 15
		module.regions[kind] = raw[skip : skip+size]
	}
	// A region of no bytes has an address all the same.
	return address(unsafe.SliceData(module.regions[kind]))
}

//go:wasmexport pol_init
func exportInit(configLen int32) (code int32) {
	defer rescue(&code)
	settings := module.regions[abi.BufferConfig]
	settings = settings[:min(len(settings), int(max(configLen, 0)))]
	slots := len(module.regions[abi.BufferRecords]) / abi.RecordSize
	policy, err := module.registered.Start(settings, slots)
	if err != nil {
		return fail(err)
	}
	module.policy = policy
	module.table = make([]abi.Record, slots)
	module.events = make([]abi.Event, len(module.regions[abi.BufferEvents])/abi.EventSize)
	return 0
}

//go:wasmexport pol_observe
func exportObserve(n int32) (code int32) {
	defer rescue(&code)
	policy, ok := module.policy.(Observer)
	if !ok {
		return 0
	}
	if n < 0 || int(n) > len(module.events) {
		return fail(&Error{abi.CodeBadArgument, "more events than fit their region"})
	}
	events := module.events[:n]
	for i := range events {
		if err := events[i].Decode(module.regions[abi.BufferEvents][i*abi.EventSize:]); err != nil {
			return fail(err)
		}
	}
	if err := policy.Observe(events); err != nil {
		return fail(err)
	}
	return 0
}

// state is the region that a state goes through, as far as it is to be used.
func state(bytes uint32) []byte {
	region := module.regions[abi.BufferState]
	return region[:min(len(region), int(bytes))]
}

//go:wasmexport pol_save
func exportSave(room uint32) (code int32) {
	defer rescue(&code)
	policy, ok := module.policy.(State)
	if !ok {
		return fail(&Error{abi.CodeUnsupported, "the policy keeps no state"})
	}
	return int32(policy.Save(state(room)))
}

//go:wasmexport pol_load
func exportLoad(length, version uint32) (code int32) {
	defer rescue(&code)
	policy, ok := module.policy.(State)
	if !ok {
		return fail(&Error{abi.CodeUnsupported, "the policy keeps no state"})
	}
	if err := policy.Load(state(length), uint16(version)); err != nil {
		return fail(err)
	}
	return 0
}

//go:wasmexport pol_decide
func exportDecide(uint32) (code int32) {
	defer rescue(&code)
	v := &module.view
	if err := v.Header.Decode(module.regions[abi.BufferHeader]); err != nil {
		return fail(err)
	}
	if v.Header.Magic != abi.Magic || v.Header.DecisionStride != abi.DecisionSize {
		return fail(&Error{abi.CodeBadArgument, "the step header is not of ABI version 1"})
	}
	changed := module.regions[abi.BufferChanged]
	v.Changed = unsafe.Slice((*uint32)(unsafe.Pointer(&changed[0])), v.Header.NChanged)
	readRecords(v)
	region := module.regions[abi.BufferDecisions]
	most := int(v.Header.DecisionsCap)
	space := unsafe.Slice((*abi.Decision)(unsafe.Pointer(&region[0])), most)
	out, err := module.policy.Decide(v, space[:0])
	if err != nil {
		return fail(err)
	}
	// An answer that was appended past the cap lies elsewhere; its beginning is what fits.
	return int32(copy(space, out))
}

// readRecords makes the table of this step visible. Its layout is the struct's own, so that no
// record is copied, unless the host's records are larger than version 1 of them.
func readRecords(v *abi.View) {
	region := module.regions[abi.BufferRecords]
	if v.Header.RecordStride == abi.RecordSize {
		v.Records = unsafe.Slice((*abi.Record)(unsafe.Pointer(&region[0])), v.Header.NSlots)
		return
	}
	if v.Header.Flags&abi.FlagResync != 0 {
		clear(module.table)
	}
	for _, slot := range v.Changed {
		at := uint64(slot) * uint64(v.Header.RecordStride)
		if err := module.table[slot].Decode(region[at:]); err != nil {
			panic(err) // The host's region is too small for its own table.
		}
	}
	v.Records = module.table[:v.Header.NSlots]
}

//go:wasmexport pol_last_error
func exportLastError() uint64 {
	return uint64(address(&module.message[0]))<<32 | uint64(module.messageLen)
}

// fail keeps an error's words for the host and gives its code.
func fail(err error) int32 {
	module.messageLen = copy(module.message[:], err.Error())
	if e := new(Error); errors.As(err, &e) && e.Code < 0 {
		module.messageLen = copy(module.message[:], e.Why)
		return e.Code
	}
	return abi.CodeUnspecified
}

// rescue turns a panic into an error: the host then throws this guest away as after any fault.
func rescue(code *int32) {
	if p := recover(); p != nil {
		*code = fail(fmt.Errorf("panic: %v", p))
	}
}

//go:wasmimport pol_v1 log
func importLog(level int32, line string)

// Log writes a line to the engine's log; levels are abi.LogDebug to abi.LogError.
func Log(level int32, line string) { importLog(level, line) }

//go:wasmimport pol_v1 log_level
func importLogLevel() int32

// LogLevel is the lowest level that is written.
func LogLevel() int32 { return importLogLevel() }

//go:wasmimport pol_v1 granted
func importGranted() uint64

// Granted are the capabilities this module got.
func Granted() uint64 { return importGranted() }

// The structs must lie in memory as SPEC.md lays out the records.
var _ = [1]int{}[unsafe.Sizeof(abi.Record{})-abi.RecordSize]
var _ = [1]int{}[unsafe.Sizeof(abi.Decision{})-abi.DecisionSize]
