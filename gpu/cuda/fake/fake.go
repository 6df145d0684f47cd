// Package fake is a CUDA driver in plain Go for tests: kernels are twins of the real ones, told by
// name; memory has bounds, and freed memory is gone; nothing runs when it is given to a stream.
// When somebody waits, streams advance one operation at a time in an order drawn from a seed, so
// that a missing wait shows. A virtual clock says what would have overlapped.
package fake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// Options configure New.
type Options struct {
	// Seed draws the order of streams. 0 runs what was given first, first.
	Seed uint64
	// Memory is the device's, in bytes; 0 means 1 GiB.
	Memory int64
	// Shared is the most shared memory of a block, in bytes; 0 means 227 KiB.
	Shared int
	// Machine is what devices share that lend one another memory; nil: the device is alone. Each
	// Driver is a process of its own there, and Device is the number of its device.
	Machine *Machine
	Device  int
	// Fail is asked before each call, by the driver's name of it, and answers its code, 0 for none.
	Fail func(call string) int
	// OutRate and KernelTime are of the virtual clock: bytes a second from device to host, seconds
	// a kernel. 0 means 55 GB/s and 5 µs.
	OutRate, KernelTime float64
}

// linkRate is what a link between host and device carries, in bytes a second.
const linkRate = 55e9

// The driver's codes that the fake answers.
const (
	invalidValue   = 1
	outOfMemory    = 2
	invalidHandle  = 400
	notFound       = 500
	illegalAddress = 700
	peerNotOn      = 705

	alreadyRegistered = 712
	notRegistered     = 713
	launchFailed      = 719
)

// Driver is the device and all of its state. Its lock is held while streams advance.
type Driver struct {
	options Options
	random  *rand.Rand

	mu      sync.Mutex
	memory  memory
	streams map[driver.Stream]*stream
	events  map[driver.Event]*event
	graphs  map[driver.Graph][]work
	table   map[string][]kernels.Type // what the module has
	kernels []kernel
	last    uintptr // handle
	dead    int     // the code of every call after a kernel failed
	engines [2]float64
	pinned  map[*byte]int // by the last byte of what was allocated or registered
	host    float64       // the time to which the host has waited: what it gives later begins later
	log     []Span
}

// Span is what one operation took of the virtual time, in seconds.
type Span struct {
	Stream     driver.Stream
	What       string
	Begin, End float64
}

// stream is a queue of work.
type stream struct {
	handle  driver.Stream
	queue   []work
	given   []int // by which turn each was given: their age
	now     float64
	capture *[]work
}

// work is one operation. ready says whether it may run; nil: at once.
type work struct {
	what   string
	ready  func() bool
	run    func(s *stream) int
	cost   float64
	engine int // of copies: 1 in, 2 out
	issued float64
}

// event is done up to the version that its last record had.
type event struct {
	scheduled, done int
	at              float64
}

// New returns a device. Fake keeps what the driver's struct does not show: see Timeline.
func New(o Options) (driver.Driver, *Driver) {
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	if o.Shared == 0 {
		o.Shared = 227 << 10
	}
	if o.OutRate == 0 {
		o.OutRate = linkRate
	}
	if o.KernelTime == 0 {
		o.KernelTime = 5e-6
	}
	f := &Driver{options: o, random: rand.New(rand.NewPCG(o.Seed, 1)),
		streams: map[driver.Stream]*stream{}, events: map[driver.Event]*event{},
		graphs: map[driver.Graph][]work{}, memory: memory{left: o.Memory}, pinned: map[*byte]int{}}
	return driver.Driver{Devices: f, Memory: f, Host: f, Copies: f, Streams: f, Events: f,
		Clock: f, Modules: f, Launcher: f, Graphs: f, Sharing: f, Peers: f, Products: f}, f
}

// Timeline is what ran so far.
func (f *Driver) Timeline() []Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// call begins a call: what it answers, if it fails.
func (f *Driver) call(name string) error {
	f.mu.Lock()
	dead := f.dead
	f.mu.Unlock()
	if dead != 0 {
		return driver.Check(name, dead)
	}
	if f.options.Fail != nil {
		return driver.Check(name, f.options.Fail(name))
	}
	return nil
}

func (f *Driver) handle() uintptr {
	f.last++
	return f.last
}

// give puts work in a stream, or in the graph that the stream captures.
func (f *Driver) give(call string, s driver.Stream, w work) error {
	if err := f.call(call); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	to := f.streams[s]
	if to == nil {
		return driver.Check(call, invalidHandle)
	}
	if to.capture != nil {
		*to.capture = append(*to.capture, w)
		return nil
	}
	f.enqueue(to, w)
	return nil
}

func (f *Driver) enqueue(to *stream, w work) {
	w.issued = f.host
	to.queue = append(to.queue, w)
	to.given = append(to.given, int(f.handle()))
}

// until advances streams until done says so; false: nothing can run any more, and never will.
func (f *Driver) until(done func() bool) bool {
	for !done() {
		s := f.choose()
		if s == nil {
			return false
		}
		w := s.queue[0]
		s.queue, s.given = s.queue[1:], s.given[1:]
		if f.dead == 0 {
			f.dead = f.step(s, w)
		}
	}
	return true
}

// choose is a stream whose next work may run.
func (f *Driver) choose() *stream {
	var can []*stream
	for _, s := range f.streams {
		if len(s.queue) > 0 && (s.queue[0].ready == nil || f.dead != 0 || s.queue[0].ready()) {
			can = append(can, s)
		}
	}
	if len(can) == 0 {
		return nil
	}
	slices.SortFunc(can, func(a, b *stream) int { return a.given[0] - b.given[0] })
	if f.options.Seed == 0 {
		return can[0]
	}
	return can[f.random.IntN(len(can))]
}

// step runs one piece of work and keeps the clock.
func (f *Driver) step(s *stream, w work) int {
	begin := max(s.now, w.issued)
	if w.engine > 0 {
		begin = max(begin, f.engines[w.engine-1])
		f.engines[w.engine-1] = begin + w.cost
	}
	code := w.run(s)
	if w.cost > 0 {
		s.now = begin + w.cost
		f.log = append(f.log, Span{s.handle, w.what, begin, s.now})
	}
	return code
}

// Open implements driver.Devices.
func (f *Driver) Open() (driver.Info, error) {
	return driver.Info{Name: "fake", Major: 9, Processors: 1, SharedPerBlock: f.options.Shared,
		Memory: f.options.Memory, Devices: 1, MatrixProducts: "fake",
		Identity: identity(f.options.Device)}, f.call("cuInit")
}

// Bind implements driver.Devices.
func (f *Driver) Bind() error { return nil }

// Close implements driver.Devices.
func (f *Driver) Close() error { return nil }

// NewStream implements driver.Streams.
func (f *Driver) NewStream() (driver.Stream, error) {
	if err := f.call("cuStreamCreate"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := driver.Stream(f.handle())
	f.streams[s] = &stream{handle: s}
	return s, nil
}

// FreeStream implements driver.Streams.
func (f *Driver) FreeStream(s driver.Stream) error {
	err := f.Finish(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
	return err
}

// Finish implements driver.Streams.
func (f *Driver) Finish(s driver.Stream) error {
	if err := f.call("cuStreamSynchronize"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.streams[s]
	if of == nil {
		return driver.Check("cuStreamSynchronize", invalidHandle)
	}
	if !f.until(func() bool { return len(of.queue) == 0 }) {
		return fmt.Errorf("a stream waits for an event that nobody will record")
	}
	f.host = max(f.host, of.now)
	return driver.Check("cuStreamSynchronize", f.dead)
}

// Wait implements driver.Streams.
func (f *Driver) Wait(s driver.Stream, e driver.Event) error {
	f.mu.Lock()
	of := f.events[e]
	version := 0
	if of != nil {
		version = of.scheduled
	}
	f.mu.Unlock()
	if of == nil {
		return driver.Check("cuStreamWaitEvent", invalidHandle)
	}
	return f.give("cuStreamWaitEvent", s, work{what: "wait",
		ready: func() bool { return of.done >= version },
		run: func(s *stream) int {
			if version > 0 {
				s.now = max(s.now, of.at)
			}
			return 0
		}})
}

// NewEvent implements driver.Events.
func (f *Driver) NewEvent(bool) (driver.Event, error) {
	if err := f.call("cuEventCreate"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := driver.Event(f.handle())
	f.events[e] = &event{}
	return e, nil
}

// FreeEvent implements driver.Events.
func (f *Driver) FreeEvent(e driver.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.events, e)
	return nil
}

// Record implements driver.Events.
func (f *Driver) Record(e driver.Event, s driver.Stream) error {
	f.mu.Lock()
	of := f.events[e]
	version := 0
	if of != nil {
		of.scheduled++
		version = of.scheduled
	}
	f.mu.Unlock()
	if of == nil {
		return driver.Check("cuEventRecord", invalidHandle)
	}
	return f.give("cuEventRecord", s, work{what: "record", run: func(s *stream) int {
		of.done, of.at = version, s.now
		return 0
	}})
}

// Sync implements driver.Events.
func (f *Driver) Sync(e driver.Event) error {
	if err := f.call("cuEventSynchronize"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.events[e]
	if of == nil {
		return driver.Check("cuEventSynchronize", invalidHandle)
	}
	version := of.scheduled
	if !f.until(func() bool { return of.done >= version || f.dead != 0 }) {
		return fmt.Errorf("an event that nobody will reach is waited for")
	}
	f.host = max(f.host, of.at)
	return driver.Check("cuEventSynchronize", f.dead)
}

// Elapsed implements driver.Clock.
func (f *Driver) Elapsed(from, to driver.Event) (float64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, b := f.events[from], f.events[to]
	if a == nil || b == nil {
		return 0, driver.Check("cuEventElapsedTime", invalidHandle)
	}
	return (b.at - a.at) * 1e3, nil
}

// Done implements driver.Clock.
func (f *Driver) Done(e driver.Event) (bool, error) {
	if err := f.call("cuEventQuery"); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.events[e]
	if of == nil {
		return false, driver.Check("cuEventQuery", invalidHandle)
	}
	return of.done >= of.scheduled, nil
}
