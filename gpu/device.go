// Package gpu says what the host needs of an accelerator: memory and about a dozen kernels, each on
// the rows of one whole batch. It owns the interfaces and the shapes; gpu/cpu implements them, and
// gpu/gputest holds the suite that every implementation must pass.
//
// What always holds, on every device:
//
//  1. A row's result depends on that row, its weights and its keys and values alone: not on which
//     other rows share the call, nor on where a prompt was cut into chunks. A device that answers
//     RowsVary excepts its products: how many rows share a call may move them by rounding.
//  2. Kernels run in the order they were called. Their results may be read after Sync.
//  3. Layouts of weights and of KV pages are the device's own business; what leaves the device
//     (Read, PackKV) has the canonical layout written at the call.
package gpu

// Device is an accelerator with its own memory. One goroutine at a time calls its kernels; PackKV
// and UnpackKV may be called beside them for pages that no running kernel touches. Gater and
// Chooser are what some can besides, and some methods more are for devices of some kinds:
//
//   - SlotsApart() bool: where it answers true, PackKV may read the complete slots of a page at
//     any time.
//   - Flush() error gives the kernels called so far to the device and does not wait: a PackKV
//     called afterwards sees what they wrote. Where it is missing, Sync is needed.
//   - StageKV(kv, layer, ranges) error begins to copy slots to the host and does not wait: PackKV
//     of them finds them there. It may do nothing.
//   - PackLane(kv, ranges, lane, at) (wait, error) and UnpackLane(kv, ranges, lane, at) error move
//     slots of one layer to and from memory that other processes reach: package cuda has both.
//   - NumericsOf([]DType) string is the class in which weights of these types are computed, where
//     Numerics names more than their bits depend on.
//   - RowsVary() bool: where it answers true, a product of a row among few may differ from that
//     among many by the rounding of another order of sums, and by no more.
type Device interface {
	Memory
	Kernels

	// Name says what it is, for people: "cpu avx2, 2 threads".
	Name() string
	// Numerics names the summation order of the kernels. Devices with equal names give equal bits;
	// it is part of a page's identity and of the hand-off's compatibility digest.
	Numerics() string
	// Close releases all memory of the device. Nothing of it may be used afterwards.
	Close() error
}

// Buffer is device memory for activations: a count of float elements whose storage type is the
// device's own choice.
type Buffer interface {
	// Elements is the capacity given to Alloc.
	Elements() int
}

// Matrix is one weight matrix, or several stacked by output row, packed once for this device.
type Matrix interface {
	// Rows is the number of output features, Cols of input features.
	Rows() int
	Cols() int
}

// Tensor is a weight as it is stored: row-major [Rows][Cols], little-endian, quantised rows as
// blocks one after another (Cols is then a multiple of DType.Block's length). Data may be a memory
// map and is not kept after the call it is passed to.
type Tensor struct {
	Rows, Cols int
	DType      DType
	Data       []byte
}

// KV is the device memory behind the pages of one model: keys and values of all layers.
type KV interface {
	Shape() KVShape
}

// Memory allocates, fills and reads device memory. Errors wrap ErrOutOfMemory or ErrLost.
type Memory interface {
	// Alloc returns a zeroed buffer of so many float elements.
	Alloc(elements int) (Buffer, error)
	// AllocKV returns the page pool of one model.
	AllocKV(shape KVShape) (KV, error)
	// Pack copies weights into the device's layout. Parts are stacked by output row and must have
	// equal Cols, so that fused projections (q, k, v; gate, up) are one Matrix; each part keeps its
	// DType.
	Pack(parts ...Tensor) (Matrix, error)
	// Write copies src to the start of dst.
	Write(dst Buffer, src []float32) error
	// Read waits for the kernels called so far and copies elements [first, first+len(dst)) to dst.
	Read(dst []float32, src Buffer, first int) error
	// Sync waits until every kernel called so far is done and returns the first error of any.
	Sync() error
}

// Kernels are the operations of a transformer's forward pass. Buffers hold rows one after another;
// each args struct states the shapes. dim, heads and so on are counts, never bytes.
type Kernels interface {
	// Embed writes row tokens[i] of table, times scale, to row i of dst: [len(tokens)][table.Cols].
	Embed(dst Buffer, table Matrix, tokens []int32, scale float32) error
	// Norm is the root-mean-square norm of each row, or of groups within each row.
	Norm(NormArgs) error
	// MatMul is dst = x · wᵀ, with optional bias and accumulation.
	MatMul(MatMulArgs) error
	// RopeAppend rotates queries and keys to their positions and appends keys and values to pages.
	RopeAppend(RopeArgs) error
	// Attention is causal attention of each row over its sequence's pages.
	Attention(AttentionArgs) error
	// GLU is dst = act(gate) * up.
	GLU(GLUArgs) error
	// Gather writes row rows[i] of src to row i of dst: [len(rows)][width].
	Gather(dst, src Buffer, rows []int32, width int) error
	// AddRows adds to rows of a buffer: the way back of what Gather took away.
	AddRows(AddRowsArgs) error
	// CopyKV copies the first Tokens slots of page From to page To, all layers, K and V.
	CopyKV(kv KV, copies []KVCopy) error
	// PackKV writes a range of slots to dst in the canonical layout of KVRange.
	PackKV(kv KV, r KVRange, dst []byte) error
	// UnpackKV is the inverse of PackKV.
	UnpackKV(kv KV, r KVRange, src []byte) error
}

// Gater is a device that computes gates and ups and their GLU in one go, without a way through
// memory for the former.
type Gater interface {
	// MatMulGLU gives the bits of MatMul and then GLU, whose GateUp is the product's Dst. What that
	// buffer holds afterwards is not said. The product does not accumulate.
	MatMulGLU(MatMulArgs, GLUArgs) error
}

// NormArgs: y = x / sqrt(mean(x²) + Eps) * (Weight + WeightOffset), for Rows·Groups vectors of
// length Dim. Row r starts at r*Stride of X and of Dst; its Groups vectors follow one another
// (QK-norm has one group a head, everything else has 1). Dst may be X.
type NormArgs struct {
	Dst, X, Weight Buffer
	Rows, Dim      int
	Groups         int // 0 means 1
	Stride         int // elements from row to row; 0 means Groups*Dim
	Offset         int // first element of a row's vectors
	Eps            float32
	WeightOffset   float32 // 1 in the Gemma families
	Accumulate     bool    // Dst += y: the residual sum of families that norm a layer's output
}

// MatMulArgs: Dst[r][o] = Σ_k X[r][k]·W[o][k], k ascending in one fused-multiply-add chain that
// starts from Dst when Accumulate is set, else from Bias when there is one, else from 0. For
// quantised weights a device may instead quantise X too, and then says so in its Numerics.
type MatMulArgs struct {
	Dst, X     Buffer // [Rows][W.Rows()], [Rows][W.Cols()]
	W          Matrix
	Rows       int
	Bias       Buffer // [W.Rows()] or nil; not together with Accumulate
	Accumulate bool
}

// RopeArgs: row r of QKV is [Heads*HeadDim | KVHeads*HeadDim | KVHeads*HeadDim] of queries, keys,
// values. Queries and keys are rotated in place by Positions[r]: pairs (i, i+len(Freqs)) of a head,
// the half-split form of the Hugging Face checkpoints; what lies beyond the rotated dimensions
// stays. Keys and values then go to slot Slots[r] of Layer. A slot is page*PageSize + offset.
type RopeArgs struct {
	QKV            Buffer
	KV             KV
	Layer          int
	Heads, KVHeads int
	HeadDim        int
	Positions      []int32
	Slots          []int32
	Rope           *Rope
}

// Rope is a rotation schedule: pair i of a head turns by position*Freqs[i] radians; cosine and
// sine are multiplied by Scale (1 but for YaRN). len(Freqs) = rotated dimensions / 2.
type Rope struct {
	Freqs []float64
	Scale float32
}

// AttentionArgs: causal attention. Query row r of sequence s stands at position Start + (r -
// FirstRow) and sees keys [0, position], less those that Window and Sinks hide: with Window > 0 key
// k is visible if k > position - Window or k < Sinks.
type AttentionArgs struct {
	Dst, QKV       Buffer // Dst [rows][Heads*HeadDim]; QKV as in RopeArgs
	KV             KV
	Layer          int
	Heads, KVHeads int
	HeadDim        int
	Scale          float32 // multiplies q·k
	Cap            float32 // bounds the scaled score s softly, as Cap·tanh(s/Cap); 0: not
	Window, Sinks  int
	Sequences      []AttentionSequence
}

// NoPage stands in a page table for a page that is gone: the window hides all of its keys from
// every query row.
const NoPage = -1

// AttentionSequence is one item of the batch: Rows query rows from FirstRow on, the first at
// position Start; Pages covers positions [0, Start+Rows). Pages that are NoPage are not touched.
type AttentionSequence struct {
	FirstRow, Rows, Start int
	Pages                 []int32
}

// Activation is the function on the gate of a GLU.
type Activation uint8

// The activations of the families built.
const (
	SiLU Activation = iota
	GELUTanh
)

// GLUArgs: row r of GateUp is [Width gate | Width up]; Dst is [Rows][Width].
type GLUArgs struct {
	Dst, GateUp Buffer
	Rows, Width int
	Activation  Activation
}

// AddRowsArgs: Dst[Rows[i]][k] += Factors[i]·X[i][k], the product rounded before it is added. Rows
// ascend strictly, so that no row comes twice.
type AddRowsArgs struct {
	Dst, X  Buffer // [more than the last of Rows][Width], [len(Rows)][Width]
	Rows    []int32
	Factors []float32
	Width   int
}

// KVShape sizes a page pool. DType is F32, F16, BF16 or Q8_0, whose blocks lie within a head:
// HeadDim is then a multiple of 32. A device that keeps no Q8_0 refuses the shape.
type KVShape struct {
	Layers, Pages, PageSize int
	KVHeads, HeadDim        int
	DType                   DType
}

// TokenBytes is what one token's key and value take in one layer, in the canonical layout.
func (s KVShape) TokenBytes() int { return 2 * s.KVHeads * s.DType.RowBytes(s.HeadDim) }

// KVRange names slots [First, First+Count) of one page in one layer. Canonical layout: Count keys
// [Count][KVHeads][HeadDim], then Count values of the same shape, little-endian, in the pool's
// DType: of a quantised one the stored blocks of each head, one after another.
type KVRange struct {
	Layer, Page, First, Count int
}

// KVCopy copies the first Tokens slots of page From over those of page To.
type KVCopy struct {
	From, To int32
	Tokens   int
}
