// Package driver says what gpu/cuda needs of the CUDA driver, in plain Go: memory, copies, streams,
// events, modules, launches, graphs, shared handles and matrix products. Package cuda implements it
// on gorgonia.org/cu behind the build tag cuda; package fake computes it in plain Go.
//
// What always holds:
//
//  1. Work in one stream runs in the order in which it was given. Streams do not wait for one
//     another, but through events: there is no default stream.
//  2. Every call but those of Host and Events.Sync comes from a thread on which Devices.Bind or
//     Open was called.
//  3. Memory that work in a stream reads or writes stays allocated, and what the host wrote there
//     unchanged, until that work is done.
//  4. Errors are *Error values; errors.Is tells gpu.ErrOutOfMemory, gpu.ErrLost and ErrRefused.
package driver

// Handles of the driver's objects. Zero is none of them.
type (
	// Pointer is an address in device memory.
	Pointer uint64
	// Stream is a queue of work.
	Stream uintptr
	// Event marks a place in a stream.
	Event uintptr
	// Module is loaded code, Function a kernel in it.
	Module   uintptr
	Function uintptr
	// Graph is work that was captured, ready to be launched again.
	Graph uintptr
)

// Driver is one device of the driver. Each group may be implemented, wrapped or replaced alone.
type Driver struct {
	Devices
	Memory
	Host
	Copies
	Streams
	Events
	Clock
	Modules
	Launcher
	Graphs
	Sharing
	Peers
	Products
}

// Identity tells a device apart from every other one: its UUID. Zero where the driver tells none.
type Identity [16]byte

// Info says what a device is.
type Info struct {
	Name           string
	Identity       Identity
	Major, Minor   int    // compute capability
	Processors     int    // streaming multiprocessors
	SharedPerBlock int    // most bytes of shared memory of a block, with SetShared
	Memory         int64  // bytes in all
	Devices        int    // how many the driver has
	DriverVersion  int    // 12040 is 12.4
	MatrixProducts string // where the library for Products was found, or why it was not
}

// Devices opens the device.
type Devices interface {
	// Open takes the device's primary context and makes it current on this thread.
	Open() (Info, error)
	// Bind makes the context current on this thread too.
	Bind() error
	// Close gives the context back, and with it all that was allocated there.
	Close() error
}

// Memory is the device's own.
type Memory interface {
	// Alloc returns memory aligned to 256 bytes at least, with anything in it.
	Alloc(bytes int64) (Pointer, error)
	Free(Pointer) error
	// Available is what is free and what there is, in bytes.
	Available() (free, total int64, err error)
}

// Host is memory of the processor that the device reads and writes by itself: copies from and to
// other memory wait for the stream.
type Host interface {
	AllocHost(bytes int) ([]byte, error)
	FreeHost([]byte) error
	// Register makes memory that is already there, such as a mapping shared between processes,
	// like memory of AllocHost.
	Register([]byte) error
	Unregister([]byte) error
}

// Copies put a copy in a stream. Host memory in them must be of Host and outlive the copy.
type Copies interface {
	CopyIn(to Pointer, from []byte, s Stream) error
	CopyOut(to []byte, from Pointer, s Stream) error
	CopyWithin(to, from Pointer, bytes int64, s Stream) error
	Fill(to Pointer, value byte, bytes int64, s Stream) error
}

// Streams are queues of work.
type Streams interface {
	NewStream() (Stream, error)
	FreeStream(Stream) error
	// Finish waits for all work given to the stream so far and returns the first error of any.
	Finish(Stream) error
	// Wait makes what follows in the stream wait for the event as it was last recorded.
	Wait(Stream, Event) error
}

// Events mark places in streams. An event that was never recorded is done.
type Events interface {
	// NewEvent returns one that Elapsed can use if timing is set.
	NewEvent(timing bool) (Event, error)
	FreeEvent(Event) error
	// Record puts the event in the stream, behind what is there.
	Record(Event, Stream) error
	// Sync waits for the event as it was last recorded.
	Sync(Event) error
}

// Clock reads events of NewEvent(true) that are done.
type Clock interface {
	// Elapsed is the device's time between two events, in milliseconds.
	Elapsed(from, to Event) (float64, error)
	// Done says whether the event as it was last recorded has been reached.
	Done(Event) (bool, error)
}

// Modules hold kernels.
type Modules interface {
	// Load takes PTX text or a cubin.
	Load(image []byte) (Module, error)
	Unload(Module) error
	Function(m Module, name string) (Function, error)
	// SetShared lets the function take so many bytes of dynamic shared memory: above 48 KiB a
	// launch is refused without.
	SetShared(f Function, bytes int) error
}

// Launch is one kernel over a grid. Each of Params is a parameter in an 8-byte cell, little-endian
// from its first byte, as Int, Float and Address make them.
type Launch struct {
	Function Function
	Grid     [3]uint32
	Block    [3]uint32
	Shared   uint32 // bytes of dynamic shared memory
	Params   []uint64
}

// Launcher starts kernels.
type Launcher interface {
	// Launch puts kernels in a stream, one after another. Params may be reused after it returns.
	Launch(s Stream, launches ...Launch) error
}

// Graphs replay work that was captured once.
type Graphs interface {
	// BeginCapture makes work given to the stream part of a graph, and not run.
	BeginCapture(Stream) error
	// EndCapture ends that, and returns the graph ready to launch.
	EndCapture(Stream) (Graph, error)
	Replay(Graph, Stream) error
	FreeGraph(Graph) error
}

// ShareHandle is device memory for another process of the same machine.
type ShareHandle [64]byte

// Sharing lends memory to other processes.
type Sharing interface {
	// Share names memory by the start of its allocation.
	Share(Pointer) (ShareHandle, error)
	// OpenShared maps what another process shares; its own allocation is refused. Memory of
	// another device is mapped too, and CopyWithin takes its address, where Reachable says so.
	OpenShared(ShareHandle) (Pointer, error)
	CloseShared(Pointer) error
}

// Peers are the devices whose memory this one's copies can touch.
type Peers interface {
	// Reachable says whether OpenShared can map memory of the device with that identity: of itself,
	// or of another that this process sees and that the machine links with this one.
	Reachable(Identity) (bool, error)
}

// Type is how the numbers of a product are stored.
type Type uint8

// The types of products: sums are float32 always.
const (
	Float32 Type = iota
	Float16
	BFloat16
)

// Product is C = A·Bᵀ + Beta·C, all row-major: C is [M][N], A is [M][K], B is [N][K].
type Product struct {
	M, N, K int
	A, B, C Pointer
	In, Out Type // of A and B, of C
	Beta    float32
}

// Products are the matrix products of the vendor's library.
type Products interface {
	Multiply(Product, Stream) error
}
