package plugins

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/fuel"
	"github.com/kvrelay/engine/plugins/lint"
)

// generation is one loaded module: its own runtime, its code, the sandbox that decides and the
// spare that would take over.
type generation struct {
	number   uint64
	spec     Spec   // what it was loaded from
	name     string // the operator's
	version  string // the operator's, or the descriptor's
	label    string // NAME@VERSION
	digest   string
	limits   Limits
	config   []byte
	slots    int
	capacity int    // decisions
	offered  uint64 // capabilities
	module   *lint.Module
	stats    fuel.Stats
	about    abi.Descriptor
	own      string // the name in its descriptor
	cutless  *Fault // why it cannot set the chunk lengths of another module's answer
	lines    *lines

	calibrated    int64    // fuel of a decision, as measured; 0 before
	globals       []uint32 // the mutable ones that hold numbers
	whole         bool     // with the memory they are all of its state
	runtimeInside bool     // it imports from WASI: a language's runtime is part of it

	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule

	// What follows belongs to whoever decides: the host's lock guards it.
	current  *sandbox
	decided  bool // current has decided a step
	swapped  bool // the next step is its first since it took over
	breaker  breaker
	pace     pace
	recovery Recovery // to be told with the next step
	counts   counts
	state    State
	since    time.Time

	mu       sync.Mutex
	boxes    map[string]*sandbox // by name, for the imports
	made     int
	spare    *sandbox
	failed   *Fault // why there is no spare
	building bool
	built    chan struct{} // closed when the latest attempt to make a spare is over; nil: none was
	closed   bool
	keeps    bool // its sandboxes keep what they are shown
	builders sync.WaitGroup
}

// fault makes a fault of this module.
func (g *generation) fault(class abi.FaultClass, call, format string, args ...any) *Fault {
	return &Fault{Class: class, Policy: g.label, Call: call, Detail: fmt.Sprintf(format, args...)}
}

// sandbox finds the sandbox of an instance that calls the host.
func (g *generation) sandbox(name string) *sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.boxes[name]
}

// forget drops a sandbox from those that may call the host.
func (g *generation) forget(s *sandbox) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.boxes, s.name)
}

// enroll names a new sandbox, so that its start function can already call the host.
func (g *generation) enroll() *sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	s := &sandbox{g: g, name: strconv.Itoa(g.made), stale: true, level: g.lines.lowest()}
	s.born = s.level
	g.boxes[s.name] = s
	return s
}

// newSandbox instantiates and initialises a fresh copy, all under one budget of fuel.
func (g *generation) newSandbox() (*sandbox, *Fault) {
	s := g.enroll()
	if f := s.start(); f != nil {
		s.close()
		return nil, f
	}
	return s, nil
}

// start brings a sandbox to where it can decide: lifecycle points 2 to 5 of the ABI.
func (s *sandbox) start() *Fault {
	if err := s.instantiate(); err != nil {
		return s.g.fault(abi.FaultLoadInit, "", "instantiating: %s", shorten(err.Error()))
	}
	if f := s.run(abi.ExportInitialize); f != nil {
		return f
	}
	if f := s.describe(); f != nil {
		return f
	}
	config := s.g.config
	for kind, size := range s.sizes() {
		if size < 0 {
			continue
		}
		if f := s.reserve(kind, uint32(size)); f != nil {
			return f
		}
	}
	region, _ := s.bytes(abi.BufferConfig)
	copy(region, config)
	if f := s.run(abi.ExportInit, uint64(len(config))); f != nil {
		return f
	}
	if code := int32(s.stack[0]); code < 0 {
		f := s.returned(abi.ExportInit, code)
		f.Class = abi.FaultLoadInit
		return f
	}
	return nil
}

// The rows that the regions of tenants, events and peers have room for. The engine numbers at most
// 1025 tenants; more events of one step than the region holds are told in several calls.
const (
	tenantRows = abi.LimitTenants
	eventRows  = 256
	peerRows   = abi.LimitPeers
)

// sizes is how large the regions are at load, in bytes by kind; -1 is one that is not asked for.
func (s *sandbox) sizes() []int {
	sizes := []int{
		abi.BufferConfig:    len(s.g.config),
		abi.BufferRecords:   s.g.slots * abi.RecordSize,
		abi.BufferChanged:   s.g.slots * 4,
		abi.BufferHeader:    abi.HeaderSize,
		abi.BufferDecisions: s.g.capacity * abi.DecisionSize,
		abi.BufferTenants:   -1,
		abi.BufferEvents:    -1,
		abi.BufferState:     -1, // When a state is handed over.
		abi.BufferPeers:     -1,
	}
	if s.granted&abi.CapTenants != 0 {
		sizes[abi.BufferTenants] = tenantRows * abi.TenantSize
	}
	if s.observe != nil {
		sizes[abi.BufferEvents] = eventRows * abi.EventSize
	}
	if s.granted&abi.CapPeers != 0 {
		sizes[abi.BufferPeers] = peerRows * abi.PeerSize
	}
	return sizes
}

// instantiate makes the instance; a start section runs in it under the initial fuel.
func (s *sandbox) instantiate() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the runtime failed: %v", r)
		}
	}()
	config := wazero.NewModuleConfig().WithName(s.name).WithStartFunctions()
	instance, err := s.g.runtime.InstantiateModule(context.Background(), s.g.compiled, config)
	if err != nil {
		return err
	}
	s.instance, s.memory = instance, instance.ExportedMemory(abi.ExportMemory)
	rest, ok := instance.ExportedGlobal(fuel.Export).(api.MutableGlobal)
	s.decide = instance.ExportedFunction(exportDecide)
	if !ok || s.decide == nil || s.memory == nil {
		return errors.New("an export is missing that the check had found")
	}
	s.fuel = rest
	for _, g := range s.g.globals {
		global, ok := instance.ExportedGlobal(fuel.StateExport(g)).(api.MutableGlobal)
		if !ok {
			return errors.New("a global is missing that the meter had exported")
		}
		s.globals = append(s.globals, global)
	}
	return nil
}

// run calls an export under what is left of the load's fuel; one that is not there is skipped. The
// result is in s.stack[0].
func (s *sandbox) run(name string, args ...uint64) *Fault {
	f := s.instance.ExportedFunction(name)
	if f == nil {
		return nil
	}
	copy(s.stack[:], args)
	if err := s.call(f); err != nil {
		fault := s.trapped(err, name)
		fault.Detail = string(fault.Class) + ": " + fault.Detail
		fault.Class = abi.FaultLoadInit
		return fault
	}
	return nil
}

// describe reads the descriptor and judges it.
func (s *sandbox) describe() *Fault {
	if f := s.run(abi.ExportABIV1); f != nil {
		return f
	}
	raw, ok := s.memory.Read(uint32(s.stack[0]), abi.DescriptorSize)
	if !ok {
		return s.g.fault(abi.FaultLoadInit, abi.ExportABIV1,
			"the descriptor at %#x lies outside the memory", uint32(s.stack[0]))
	}
	var d abi.Descriptor
	err := d.Decode(raw)
	if err == nil {
		err = d.Check(s.g.offered)
	}
	if err != nil {
		return s.g.fault(abi.FaultLoadInit, abi.ExportABIV1, "%v", err)
	}
	s.granted = d.Granted(s.g.offered)
	if s.granted&abi.CapEvents != 0 {
		s.observe = s.instance.ExportedFunction(abi.ExportObserve)
	}
	s.g.describedBy(s, d)
	return nil
}

// maxLabel bounds the name and the version that a descriptor gives, in bytes.
const maxLabel = 64

// describedBy keeps the descriptor of the first sandbox and completes the module's label from it.
func (g *generation) describedBy(s *sandbox, d abi.Descriptor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.about.Magic != 0 {
		return
	}
	g.about = d
	g.own = plain(s.text(d.NamePtr, min(d.NameLen, maxLabel)))
	if g.name == "" {
		g.name = g.own
	}
	if g.version == "" {
		g.version = plain(s.text(d.VersionPtr, min(d.VersionLen, maxLabel)))
	}
	g.label = label(g.name, g.version)
	g.lines.rename(g.label)
}

// plain keeps of a guest's own name what can stand in logs, metrics and commands.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune("-_.+:", r):
			return r
		default:
			return '_'
		}
	}, s)
}

// label is how a module is called where people read.
func label(name, version string) string {
	if version == "" {
		return name
	}
	return name + "@" + version
}

// reserve asks the guest for a region and judges what it gave.
func (s *sandbox) reserve(kind int, size uint32) *Fault {
	if f := s.run(abi.ExportBuffer, uint64(kind), uint64(size)); f != nil {
		return f
	}
	at := uint32(s.stack[0])
	wrong := func(format string, args ...any) *Fault {
		return s.g.fault(abi.FaultLoadInit, abi.ExportBuffer,
			"region %d of %d bytes: %s", kind, size, fmt.Sprintf(format, args...))
	}
	_, inside := s.memory.Read(at, size)
	switch {
	case at == 0:
		return wrong("refused")
	case at%16 != 0:
		return wrong("%#x is not a multiple of 16", at)
	case !inside:
		return wrong("%#x lies outside the memory of %d bytes", at, s.memory.Size())
	}
	for other, r := range s.regions {
		if other != kind && at < r.at+r.size && r.at < at+size {
			return wrong("it overlaps region %d", other)
		}
	}
	s.regions[kind] = region{at: at, size: size}
	clear, _ := s.bytes(kind)
	for i := range clear {
		clear[i] = 0
	}
	return nil
}
