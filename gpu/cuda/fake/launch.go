package fake

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// kernel is one function of the module.
type kernel struct {
	name   string
	params []kernels.Type
	shared int // what SetShared allows; 48 KiB before
	run    func(*call)
}

const sharedWithoutAsking = 48 << 10

// Load implements driver.Modules. The image is told by its first line and not read: kernels are
// this package's.
func (f *Driver) Load(image []byte) (driver.Module, error) {
	if err := f.call("cuModuleLoadData"); err != nil {
		return 0, err
	}
	if bytes.IndexByte(image, 0) >= 0 {
		return 0, driver.Check("cuModuleLoadData", 200)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table = map[string][]kernels.Type{}
	for _, k := range kernels.Table() {
		f.table[k.Name] = k.Params
	}
	return 1, nil
}

// Unload implements driver.Modules.
func (f *Driver) Unload(driver.Module) error { return nil }

// Function implements driver.Modules.
func (f *Driver) Function(_ driver.Module, name string) (driver.Function, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	params, ok := f.table[name]
	if !ok {
		return 0, driver.Check("cuModuleGetFunction", notFound)
	}
	f.kernels = append(f.kernels, kernel{name, params, sharedWithoutAsking, twin(name)})
	return driver.Function(len(f.kernels)), nil
}

// SetShared implements driver.Modules.
func (f *Driver) SetShared(fn driver.Function, bytes int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fn < 1 || int(fn) > len(f.kernels) {
		return driver.Check("cuFuncSetAttribute", invalidHandle)
	}
	if bytes < 0 || bytes > f.options.Shared {
		return driver.Check("cuFuncSetAttribute", invalidValue)
	}
	f.kernels[fn-1].shared = bytes
	return nil
}

// Launch implements driver.Launcher: what hardware refuses is refused.
func (f *Driver) Launch(s driver.Stream, launches ...driver.Launch) error {
	for i := range launches {
		if err := f.launch(s, &launches[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *Driver) launch(s driver.Stream, l *driver.Launch) error {
	const name = "cuLaunchKernel"
	f.mu.Lock()
	known := l.Function >= 1 && int(l.Function) <= len(f.kernels)
	var k kernel
	if known {
		k = f.kernels[l.Function-1]
	}
	f.mu.Unlock()
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	switch {
	case !known:
		return driver.Check(name, invalidHandle)
	case l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || threads == 0 || threads > 1024,
		l.Grid[1] > 65535 || l.Grid[2] > 65535, int(l.Shared) > k.shared,
		len(l.Params) != len(k.params):
		return driver.Check(name, invalidValue)
	}
	c := &call{driver: f, kernel: k, params: append([]uint64(nil), l.Params...), grid: l.Grid,
		shared: int(l.Shared)}
	return f.give(name, s, work{what: k.name, cost: f.options.KernelTime,
		run: func(*stream) int { return c.run() }})
}

// call is one launch while it runs.
type call struct {
	driver *Driver
	kernel kernel
	params []uint64
	next   int
	grid   [3]uint32
	shared int
}

// broken is what a twin panics with when it touches memory that is not there.
type broken int

func (c *call) run() (code int) {
	defer func() {
		if r := recover(); r != nil {
			stop, ok := r.(broken)
			if !ok {
				panic(r)
			}
			code = int(stop)
		}
	}()
	c.next = 0
	c.kernel.run(c)
	return 0
}

// cell takes the next parameter, whose type must be t.
func (c *call) cell(t kernels.Type) uint64 {
	if c.kernel.params[c.next] != t {
		panic(broken(launchFailed))
	}
	c.next++
	return c.params[c.next-1]
}

func (c *call) ptr() uint64      { return c.cell(kernels.Pointer) }
func (c *call) int() int         { return int(int32(c.cell(kernels.Int))) }
func (c *call) float() float32   { return math.Float32frombits(uint32(c.cell(kernels.Float))) }
func (c *call) dtype() gpu.DType { return gpu.DType(c.int()) }

// named is the type of rows in the kernel's name.
func (c *call) named() gpu.DType {
	for t := range gpu.BF16 + 1 {
		if strings.HasSuffix(c.kernel.name, "_"+t.String()) {
			return t
		}
	}
	panic("fake: a kernel without a type: " + c.kernel.name)
}

// bytes is memory of the device.
func (c *call) bytes(at uint64, n int) []byte {
	b := c.driver.memory.at(driver.Pointer(at), int64(n))
	if b == nil {
		panic(broken(illegalAddress))
	}
	return b
}

// row is n numbers of a type from element first on.
type row struct {
	t    gpu.DType
	data []byte
}

func (c *call) row(at uint64, t gpu.DType, first, n int) row {
	size := t.Bytes()
	return row{t, c.bytes(at+uint64(first*size), n*size)}
}

func (r row) get(i int) float32 {
	switch r.t {
	case gpu.F16:
		return cpu.FromHalf(binary.LittleEndian.Uint16(r.data[2*i:]))
	case gpu.BF16:
		return cpu.FromBfloat(binary.LittleEndian.Uint16(r.data[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(r.data[4*i:]))
}

func (r row) set(i int, x float32) {
	switch r.t {
	case gpu.F16:
		binary.LittleEndian.PutUint16(r.data[2*i:], cpu.Half(x))
	case gpu.BF16:
		binary.LittleEndian.PutUint16(r.data[2*i:], cpu.Bfloat(x))
	default:
		binary.LittleEndian.PutUint32(r.data[4*i:], math.Float32bits(x))
	}
}

// ints is n int32 numbers.
func (c *call) ints(at uint64, n int) []int32 {
	out := make([]int32, n)
	b := c.bytes(at, 4*n)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// Multiply implements driver.Products, k ascending.
func (f *Driver) Multiply(p driver.Product, s driver.Stream) error {
	if p.M <= 0 || p.N <= 0 || p.K <= 0 {
		return &driver.Error{Call: "cublasGemmEx", Code: 7, Lib: "cuBLAS"}
	}
	types := map[driver.Type]gpu.DType{driver.Float32: gpu.F32, driver.Float16: gpu.F16,
		driver.BFloat16: gpu.BF16}
	c := &call{driver: f, kernel: kernel{name: "product", run: func(c *call) {
		in, out := types[p.In], types[p.Out]
		a := c.row(uint64(p.A), in, 0, p.M*p.K)
		b := c.row(uint64(p.B), in, 0, p.N*p.K)
		to := c.row(uint64(p.C), out, 0, p.M*p.N)
		x, w := make([]float32, p.K), make([]float32, p.N*p.K)
		for i := range w {
			w[i] = b.get(i)
		}
		for m := range p.M {
			for k := range x {
				x[k] = a.get(m*p.K + k)
			}
			for n := range p.N {
				sum := float32(0)
				for k, v := range w[n*p.K:][:p.K] {
					sum += x[k] * v
				}
				if p.Beta != 0 {
					sum += p.Beta * to.get(m*p.N+n)
				}
				to.set(m*p.N+n, sum)
			}
		}
	}}}
	const rate = 790e12
	return f.give("cublasGemmEx", s, work{what: "product",
		cost: f.options.KernelTime + 2*float64(p.M)*float64(p.N)*float64(p.K)/rate,
		run:  func(*stream) int { return c.run() }})
}

// BeginCapture implements driver.Graphs.
func (f *Driver) BeginCapture(s driver.Stream) error {
	if err := f.call("cuStreamBeginCapture"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[s] == nil || f.streams[s].capture != nil {
		return driver.Check("cuStreamBeginCapture", invalidHandle)
	}
	f.streams[s].capture = &[]work{}
	return nil
}

// EndCapture implements driver.Graphs.
func (f *Driver) EndCapture(s driver.Stream) (driver.Graph, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[s] == nil || f.streams[s].capture == nil {
		return 0, driver.Check("cuStreamEndCapture", invalidHandle)
	}
	g := driver.Graph(f.handle())
	f.graphs[g] = *f.streams[s].capture
	f.streams[s].capture = nil
	return g, nil
}

// Replay implements driver.Graphs.
func (f *Driver) Replay(g driver.Graph, s driver.Stream) error {
	if err := f.call("cuGraphLaunch"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	work, to := f.graphs[g], f.streams[s]
	if work == nil || to == nil {
		return driver.Check("cuGraphLaunch", invalidHandle)
	}
	for _, w := range work {
		f.enqueue(to, w)
	}
	return nil
}

// FreeGraph implements driver.Graphs.
func (f *Driver) FreeGraph(g driver.Graph) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.graphs, g)
	return nil
}
