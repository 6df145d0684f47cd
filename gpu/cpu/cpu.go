// Package cpu is the default device: it computes on the processor. Twin says in plain Go what
// each kernel means; Device computes the same bits with packed weights, tiles, threads and, where
// the processor has them, AVX-512, or AVX2 and FMA with or without AVX-VNNI.
package cpu

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// ISA selects the instructions of the inner loops.
type ISA string

// The instruction sets. All of them give the same bits.
const (
	Auto    ISA = ""        // the best this processor has
	AMX     ISA = "amx"     // AVX512 and tiles of bfloat16, for the class tdp alone; amd64 on Linux
	AVX512  ISA = "avx512"  // AVX-512 F, BW, VL, DQ and VNNI; amd64 only
	AVXVNNI ISA = "avxvnni" // AVX2 and the dot product of four bytes without AVX-512; amd64 only
	AVX2    ISA = "avx2"    // AVX2, FMA and F16C; amd64 only
	Go      ISA = "plain"   // plain Go; everywhere
)

// maxThreads bounds the worker pool.
const maxThreads = 1024

// Options configure Open.
type Options struct {
	Threads int // 0 means GOMAXPROCS
	ISA     ISA
	// FloatActivations: quantised weights meet activations in float32, not in 8-bit integers. It
	// is slower and nearer to what the weights say, and another numerics class.
	FloatActivations bool
	// TDP: weights that are not quantised are multiplied in the order of AMX, NumericsTDP, on any
	// processor.
	TDP bool
	// BF16Activations: activations that meet weights in BF16 are rounded to bfloat16. It is faster
	// where the processor multiplies those, gives the same bits everywhere, and is a numerics class
	// of its own. There is none of it with TDP.
	BF16Activations bool
}

// Device is the fast path. It owns its worker threads. One goroutine at a time calls its kernels.
type Device struct {
	activations
	micro   *micro
	class   numericsClass
	pool    *pool
	scratch []*scratch // one a worker
	angles  angleCache
	store   store // of weights
	inputs  quantInputs
	planes  tdpInputs
	tiles   amxInputs
	calls   int                             // that had their rows copied apart
	zeros   [widePanels * panelRows]float32 // where chains without a bias start

	// The job of each kernel, kept here so that a call allocates nothing.
	packing      packJob
	embed        embedJob
	norm         normJob
	matmul       matmulJob
	gated        gatedJob
	quantMatmul  quantMatmulJob
	quantiseRows quantiseJob
	splitRows    splitJob
	tdpMatmul    tdpJob
	splitTiles   amxSplitJob
	amxMatmul    amxJob
	rope         ropeJob
	attention    attentionJob
	glu          gluJob
}

// Open starts the device's worker threads. An ISA that this processor lacks is an error.
func Open(o Options) (*Device, error) {
	if o.TDP && o.BF16Activations {
		return nil, fmt.Errorf("cpu device: the numerics class %s splits activations, and none "+
			"that rounds them to bf16 is built: set backend.numerics = %q, or backend.activations "+
			"= \"int8\" or \"f32\"", NumericsTDP, NumericsFMA)
	}
	m, err := choose(o.ISA, o.TDP)
	if err != nil {
		return nil, err
	}
	if dots := fastDots(); o.BF16Activations && m.name == AVX512 && dots != nil && dots.agrees() {
		m.take(dots)
	}
	if o.Threads == 0 {
		o.Threads = min(runtime.GOMAXPROCS(0), maxThreads)
	}
	if o.Threads < 0 || o.Threads > maxThreads {
		return nil, fmt.Errorf("cpu device: %d threads; 1 to %d are possible",
			o.Threads, maxThreads)
	}
	d := &Device{micro: m, pool: newPool(o.Threads),
		class: numericsClass{o.TDP, o.BF16Activations, !o.FloatActivations}}
	for range o.Threads {
		d.scratch = append(d.scratch, newScratch())
	}
	return d, nil
}

func choose(isa ISA, tdp bool) (*micro, error) {
	switch isa {
	case Go:
		return goMicro(), nil
	case AVX2, AVXVNNI, AVX512, AMX:
		if isa == AMX && !tdp {
			return nil, fmt.Errorf("cpu device: the tiles of %q have sums in the order of the "+
				"numerics class %s alone: set backend.numerics = %q", isa, NumericsTDP, NumericsTDP)
		}
		if m := fastMicro(isa); m != nil {
			return m, nil
		}
		return nil, fmt.Errorf("cpu device: this machine lacks the instructions of %q; it has %s",
			isa, available())
	case Auto:
		for _, best := range []ISA{AMX, AVX512, AVXVNNI, AVX2} {
			if best == AMX && !tdp {
				continue
			}
			if m := fastMicro(best); m != nil {
				return m, nil
			}
		}
		return goMicro(), nil
	}
	return nil, fmt.Errorf("cpu device: unknown instruction set %q; there are %q, %q, %q, %q "+
		"and %q", isa, AMX, AVX512, AVXVNNI, AVX2, Go)
}

// available names the instruction sets of this machine.
func available() string {
	var names []string
	for _, isa := range []ISA{AMX, AVX512, AVXVNNI, AVX2} {
		if fastMicro(isa) != nil {
			names = append(names, string(isa))
		}
	}
	return strings.Join(append(names, string(Go)), ", ")
}

// Check names the instructions that Open would choose, or says why it would refuse, and starts
// nothing.
func Check(o Options) (ISA, error) {
	m, err := choose(o.ISA, o.TDP)
	if err != nil {
		return "", err
	}
	return m.name, nil
}

// Name implements gpu.Device.
func (d *Device) Name() string { return d.name(d.micro.roundPairs != nil) }

// NameIn is the name for weights that are computed in a class, of NumericsOf: without instructions
// that only another class uses.
func (d *Device) NameIn(class string) string {
	return d.name(d.micro.roundPairs != nil && classOf(class).bf16)
}

func (d *Device) name(bf16 bool) string {
	name := string(d.micro.name)
	if bf16 {
		name += " with bf16"
	}
	return fmt.Sprintf("cpu %s, %d threads", name, d.pool.threads())
}

// ISA is the instruction set that the device uses.
func (d *Device) ISA() ISA { return d.micro.name }

// Threads is how many compute at once.
func (d *Device) Threads() int { return d.pool.threads() }

// Numerics implements gpu.Device.
func (d *Device) Numerics() string { return d.class.String() }

// NumericsOf is the class of weights of some types, as gpu.Device says.
func (d *Device) NumericsOf(types []gpu.DType) string { return d.class.of(types) }

// Close ends the worker threads. Memory goes back when nothing refers to it any more.
func (d *Device) Close() error {
	d.pool.close()
	return nil
}

// scratch is what one worker needs for itself.
type scratch struct {
	*vectors
	call    tile // the arguments of the kernel being called
	apart   rowsApart
	squares [normLanes]float64

	// Attention: state of all lines of a task, and what its kernels go through.
	tops      [attentionLines]float32
	totals    [attentionLines]float32
	panels    [attentionBlock + 1]keyPanel // of one block of positions
	stretches [attentionBlock + 1]stretch  // of one call, or of the calls of one block
	keyList   [attentionBlock + 1]stretch  // of the panels
	columns   [attentionBlock]stretch      // the values of one block, column by column
	queries   []float32                    // [attentionLines][head]
	output    []float32                    // [attentionLines][padded head]

	keySweep, valueSweep sweep

	softmax softmaxCall
	stored  [maxStored]uint16 // a key on its way to its page

	// Keys or values of Q8_0 on their way to a page, and those of one block of positions on their
	// way back: panels like those of the pool, and the values of column i at i·HeadDim.
	integers   [maxStored]int8
	metas      [maxStored / quantBlock]quantMeta
	wideKeys   []float32
	wideValues []float32
	widening   widenCall

	quant    *quantScratch
	unpack   unpackCall
	widen    floatCall
	tile     quantTile
	quantise quantiseCall

	tdp     *tdpScratch
	tdpTile tdpTile
	split   tdpSplit
	pairs   pairCall
	planes  tdpWiden

	amx     *amxScratch // made when it is first needed
	amxCall amxCall
}

// vectors are what kernels load and store whole vectors of. It lies where no vector crosses a line
// of the cache, and has no Go pointers in it.
type vectors struct {
	init, out  [tileRows * panelRows]float32   // start and result of a ragged tile
	gates, ups [tileRows][gatedWidth]float32   // of one tile
	scores     [tileRows * scoreStride]float32 // of attention, of the lines of one tile
	powers     softPowers                      // of softmax
}

// newScratch aligns what kernels load in whole vectors.
func newScratch() *scratch {
	m := newMemory(int(unsafe.Sizeof(quantScratch{})))
	planes := newMemory(int(unsafe.Sizeof(tdpScratch{})))
	v := newMemory(int(unsafe.Sizeof(vectors{})))
	s := &scratch{vectors: (*vectors)(v.at(0)), quant: (*quantScratch)(m.at(0)),
		tdp: (*tdpScratch)(planes.at(0))}
	s.softmax.powers = &s.powers
	return s
}

// forget drops the addresses of the last call: they may lie in memory that is unmapped one day, and
// the garbage collector must not find them then.
func (s *scratch) forget() {
	s.call = tile{}
	clear(s.panels[:])
	clear(s.stretches[:])
	clear(s.keyList[:])
	clear(s.columns[:])
	s.keySweep, s.valueSweep = sweep{}, sweep{}
	s.unpack, s.widen, s.tile = unpackCall{}, floatCall{}, quantTile{}
	s.widening = widenCall{}
	s.tdpTile, s.planes, s.amxCall = tdpTile{}, tdpWiden{}, amxCall{}
}

// address is that of element i.
func address(x []float32, i int) unsafe.Pointer { return unsafe.Pointer(&x[i]) }

// smallWork is how many multiplications are not worth waking another worker for.
const smallWork = 1 << 15

// tasksPerThread makes tasks small enough that the last ones even out the threads' load.
const tasksPerThread = 8

// split cuts a job of independent rows into as many tasks as its work deserves, rowsPerTask each.
func (d *Device) split(rows, workPerRow int) (tasks, rowsPerTask int) {
	tasks = min(rows, rows*workPerRow/smallWork+1, tasksPerThread*d.pool.threads())
	if tasks <= 1 {
		return min(rows, 1), rows
	}
	rowsPerTask = (rows + tasks - 1) / tasks
	return (rows + rowsPerTask - 1) / rowsPerTask, rowsPerTask
}
