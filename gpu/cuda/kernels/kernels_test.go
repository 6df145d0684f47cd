package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/kvrelay/engine/gpu"
)

var entries = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\((.*?)\)\n\.maxntid (\d+),`)
var params = regexp.MustCompile(`\.param \.(\w+) `)

// TestTable: the table names the kernels of the PTX, and their parameters, in order.
func TestTable(t *testing.T) {
	types := map[string]Type{"u64": Pointer, "u32": Int, "f32": Float}
	found := map[string][]Type{}
	for _, e := range entries.FindAllStringSubmatch(PTX(), -1) {
		list := []Type{}
		for _, p := range params.FindAllStringSubmatch(e[2], -1) {
			list = append(list, types[p[1]])
		}
		found[e[1]] = list
	}
	table := Table()
	for _, k := range table {
		list, ok := found[k.Name]
		if !ok {
			t.Errorf("the PTX has no %s", k.Name)
		} else if !slices.Equal(list, k.Params) {
			t.Errorf("%s takes %v, in the PTX %v", k.Name, k.Params, list)
		}
		if len(k.Params) > maxArgs {
			t.Errorf("%s: %d parameters", k.Name, len(k.Params))
		}
		delete(found, k.Name)
	}
	for name := range found {
		t.Errorf("the table lacks %s", name)
	}
}

// launches are some of every builder, with sizes for more than one block where there can be.
func launches(t gpu.DType) map[string]Launch {
	shape := gpu.KVShape{Layers: 2, Pages: 4, PageSize: 16, KVHeads: 2, HeadDim: 64,
		DType: gpu.BF16}
	all := map[string]Launch{
		"embed":       Embed{Rows: 3, Width: 5000}.Launch(t),
		"norm_row":    Norm{Rows: 3, Groups: 1, Dim: 4096}.Launch(t),
		"norm_head":   Norm{Rows: 3, Groups: 7, Dim: 128}.Launch(t),
		"rope_table":  RopeTable{Rows: 3, Half: 64}.Launch(),
		"rope_append": RopeAppend{Rows: 3, Heads: 32, KVHeads: 8}.Launch(t),
		"glu":         GLU{Rows: 3, Width: 14336}.Launch(t),
		"gather":      Gather{Count: 3, Width: 7}.Launch(t),
		"add_rows":    AddRows{Count: 3, Width: 7}.Launch(t),
		"bias_rows":   Bias{Rows: 3, Width: 7}.Launch(t),
		"from_float":  Convert{Count: 9999}.FromFloat(t),
		"to_float":    Convert{Count: 9999}.ToFloat(t),
		"fill":        Fill{Count: 9999}.Launch(t),
		"kv_copy":     CopyPages{Count: 3, Shape: shape}.Launch(),
		"kv_pack":     PackPages{Count: 3, Shape: shape}.Pack(),
		"kv_unpack":   PackPages{Count: 3, Shape: shape}.Unpack(),
		"argmax":      Argmax{Rows: 3, Width: 99}.Launch(t),
		"top_k":       TopK{Rows: 3, Width: 999, K: 256}.Launch(t),
	}
	for _, dim := range []int{64, 128, 256, 48} {
		shape.HeadDim = dim
		for i, l := range attention(shape, t, 2000, 227<<10) {
			all["attention "+strconv.Itoa(dim)+" "+strconv.Itoa(i)] = l
		}
	}
	return all
}

// attention is the launches of a prompt and a decode row, where blocks may have so much shared
// memory.
func attention(shape gpu.KVShape, t gpu.DType, rows, shared int) []Launch {
	var plan Plan
	plan.Make(Batch{Shape: shape, Shared: shared, Sequences: []gpu.AttentionSequence{
		{Rows: rows, Pages: make([]int32, 200)}, {FirstRow: rows, Rows: 1, Start: 900,
			Pages: make([]int32, 200)}}})
	return Attention{Plan: &plan, Shape: shape, Heads: 8}.Append(nil, t)
}

// TestSharedMemory: on every generation of GPUs the tensor core kernels take each of their head
// sizes, and no launch asks for more than there is. 48 KiB is less than any that can be used has.
func TestSharedMemory(t *testing.T) {
	const any = 1 // launches of the kernel of any shape
	for _, limit := range []int{48, 99, 163, 227} {
		for _, dim := range []int{64, 128, 256} {
			shape := gpu.KVShape{Layers: 2, Pages: 4, PageSize: 16, KVHeads: 2, HeadDim: dim,
				DType: gpu.BF16}
			for _, rows := range []int{2, 512, 600} {
				list := attention(shape, gpu.BF16, rows, limit<<10)
				if fast := limit > 48 || dim < 256; (len(list) > any) != fast {
					t.Errorf("%d KiB, heads of %d: %d launches", limit, dim, len(list))
				}
				for _, l := range list {
					if int(l.Shared) > limit<<10 {
						t.Errorf("%d KiB, heads of %d, %d rows: %s asks for %d bytes", limit, dim,
							rows, Table()[l.Kernel].Name, l.Shared)
					}
				}
			}
		}
	}
}

// TestLaunchesFitTheirKernels: what the builders pass is what the kernels take, within the bounds
// that they were compiled for and that a device has.
func TestLaunchesFitTheirKernels(t *testing.T) {
	bounds := map[string]int{}
	for _, e := range entries.FindAllStringSubmatch(PTX(), -1) {
		bounds[e[1]], _ = strconv.Atoi(e[3])
	}
	table := Table()
	for activations := range gpu.DType(activationTypes) {
		for name, l := range launches(activations) {
			k := table[l.Kernel]
			if want := regexp.MustCompile(`^\w+`).FindString(name); want != "attention" &&
				!regexp.MustCompile(`^`+want+`(_f32|_f16|_bf16)?$`).MatchString(k.Name) {
				t.Errorf("%s launches %s", name, k.Name)
			}
			if len(l.Args()) != len(k.Params) {
				t.Errorf("%s: %d arguments for %d parameters", name, len(l.Args()), len(k.Params))
			}
			if l.Empty() || l.Block[0]%32 != 0 || int(l.Block[0]) > bounds[k.Name] {
				t.Errorf("%s: grid %v, blocks of %v, bound %d", name, l.Grid, l.Block,
					bounds[k.Name])
			}
			if l.Shared > 48<<10 && int(l.Shared) > k.Shared || k.Shared > 227<<10 {
				t.Errorf("%s: %d bytes shared, table says %d", name, l.Shared, k.Shared)
			}
		}
	}
}

// TestPlan: each query row is in exactly one list, and a decode row's items are the splits that it
// sees.
func TestPlan(t *testing.T) {
	shape := gpu.KVShape{Layers: 1, Pages: 999, PageSize: 16, KVHeads: 2, HeadDim: 64,
		DType: gpu.F16}
	pages := make([]int32, 200)
	var p Plan
	p.Make(Batch{Shape: shape, Shared: 227 << 10, Window: 600, Sinks: 3,
		Sequences: []gpu.AttentionSequence{
			{FirstRow: 0, Rows: 130, Start: 0, Pages: pages},
			{FirstRow: 130, Rows: 1, Start: 2999, Pages: pages},
			{FirstRow: 131, Rows: 0, Start: 5, Pages: pages},
			{FirstRow: 140, Rows: 64, Start: 1000, Pages: pages}}})
	word := func(list, i int) int32 { return p.Words[int(p.Words[list])+i] }
	var tiles [][2]int32
	for i := range p.tiles {
		tiles = append(tiles, [2]int32{word(planTileList, 2*i), word(planTileList, 2*i+1)})
	}
	if want := [][2]int32{{3, 0}, {0, 128}, {0, 64}, {0, 0}}; !slices.Equal(tiles, want) {
		t.Errorf("tiles %v, want %v", tiles, want)
	}
	// Position 2999 with a window of 600 sees [2400, 2999], splits 4 and 5, and the sinks' split 0.
	var splits []int32
	for i := range p.items {
		splits = append(splits, word(planItemList, 2*i+1))
	}
	if !slices.Equal(splits, []int32{0, 4, 5}) || p.rows != 1 || p.any != 0 {
		t.Errorf("splits %v, %d rows, %d of any shape", splits, p.rows, p.any)
	}
	if row := word(planRowList, 0); row != 130 || word(planRowList, 2) != 3 {
		t.Errorf("decode row %d of %d items", row, word(planRowList, 2))
	}
	shape.HeadDim = 80
	p.Make(Batch{Shape: shape, Sequences: []gpu.AttentionSequence{{Rows: 3, Pages: pages}}})
	if p.any != 3 || p.tiles != 0 || p.ScratchFloats(4, 80) != 0 {
		t.Errorf("heads of 80: %d rows of any shape, %d tiles", p.any, p.tiles)
	}
}

// TestPTX: the committed PTX is what the sources give, where their compiler is installed.
func TestPTX(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	if _, err := exec.LookPath("clang-14"); err != nil {
		if os.Getenv("ENGINE_REQUIRE_TOOLCHAINS") != "" {
			t.Fatal(err)
		}
		t.Skip("no clang-14")
	}
	if os.Getenv("ENGINE_REQUIRE_TOOLCHAINS") == "" {
		t.Skip("set ENGINE_REQUIRE_TOOLCHAINS=1 to rebuild the PTX")
	}
	made := filepath.Join(t.TempDir(), "kernels.ptx")
	if out, err := exec.Command("src/build.sh", made).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, []byte(PTX())) {
		t.Error("kernels.ptx is not what src gives: run gpu/cuda/kernels/src/build.sh " +
			"gpu/cuda/kernels/kernels.ptx and commit it")
	}
}
