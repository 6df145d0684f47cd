package lint

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// sharedDir finds the data that lies beside the repository, or skips the test.
func sharedDir(t testing.TB) string {
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return dir
}

// vec is a vector of items: their number, then the items.
func vec(items ...string) string { return leb(len(items)) + strings.Join(items, "") }

// text is a name: its length, then its bytes.
func text(s string) string { return leb(len(s)) + s }

// leb writes an unsigned number as short as it can be.
func leb(n int) string {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return string(append(b, byte(n)))
}

// section is a section with its length.
func section(id byte, payload string) string { return string([]byte{id}) + text(payload) }

// module puts sections behind a preamble.
func module(sections ...string) []byte {
	return []byte("\x00asm\x01\x00\x00\x00" + strings.Join(sections, ""))
}

// code is a body without locals.
func code(instructions string) string { return text("\x00" + instructions + "\x0b") }

const voidType = "\x60\x00\x00"

// The sections that declare one function without parameters, and an empty body for it.
var (
	oneType     = section(1, vec(voidType))
	oneFunction = section(3, vec("\x00"))
	oneBody     = section(10, vec(code("")))
	onePage     = section(5, vec("\x00\x01"))
)

// function is a module with one function of no parameters, a memory and a table.
func function(instructions string) []byte {
	return module(oneType, oneFunction,
		section(4, vec("\x70\x01\x01\x02")), onePage, section(6, vec("\x7f\x01\x41\x00\x0b")),
		section(10, vec(code(instructions))))
}

// refused lists one module for every rule, and what it is refused for.
var refused = []struct {
	name   string
	code   Code
	module []byte
}{
	{"empty", NotAModule, nil},
	{"text", NotAModule, []byte("(module)")},
	{"version 2", NotAModule, []byte("\x00asm\x02\x00\x00\x00")},
	{"component", Component, []byte("\x00asm\x0d\x00\x01\x00")},
	{"section longer than file", Malformed, module("\x01\x05\x00")},
	{"length of six bytes", Malformed, module("\x01\x80\x80\x80\x80\x80\x00")},
	{"length over 32 bits", Malformed, module("\x01\xff\xff\xff\xff\x1f")},
	{"section out of order", Malformed, module(section(3, vec()), section(1, vec()))},
	{"section twice", Malformed, module(section(1, vec()), section(1, vec()))},
	{"tag section", Unsupported, module(section(13, vec()))},
	{"bytes behind a section", Malformed, module(section(1, vec()+"\x00"))},
	{"2^32-1 types", Malformed, module(section(1, "\xff\xff\xff\xff\x0f"))},
	{"2^32-1 exports", Malformed, module(section(7, "\xff\xff\xff\xff\x0f"))},
	{"2^32-1 code", Malformed, module(section(10, "\xff\xff\xff\xff\x0f"))},
	{"2^32-1 data", Malformed, module(section(11, "\xff\xff\xff\xff\x0f"))},
	{"2^32-1 elements", Malformed, module(section(9, "\xff\xff\xff\xff\x0f"))},
	{"2^32-1 globals", Malformed, module(section(6, "\xff\xff\xff\xff\x0f"))},
	{"struct type", Unsupported, module(section(1, vec("\x5f\x00\x00")))},
	{"unknown value type", Unsupported, module(section(1, vec("\x60\x01\x42\x00")))},
	{"65 parameters", BadSignature,
		module(section(1, vec("\x60"+leb(65)+strings.Repeat("\x7f", 65)+"\x00")))},
	{"imported memory", BadImport, module(section(2, vec("\x01a\x01b\x02\x00\x01")))},
	{"import of no type", BadIndex, module(section(2, vec("\x01a\x01b\x00\x00")))},
	{"name not UTF-8", Malformed, module(section(2, vec("\x01\xff\x01b\x00\x00")))},
	{"function of no type", BadIndex, module(section(3, vec("\x00")))},
	{"function without code", Malformed, module(oneType, oneFunction)},
	{"code without function", Malformed, module(oneBody)},
	{"two tables", TooMany, module(section(4, vec("\x70\x00\x00", "\x70\x00\x00")))},
	{"table of 65537", TableSize, module(section(4, vec("\x70\x00"+leb(65537))))},
	{"table up to 65537", TableSize, module(section(4, vec("\x70\x01\x00"+leb(65537))))},
	{"table shrinks", Malformed, module(section(4, vec("\x70\x01\x02\x01")))},
	{"table of numbers", Malformed, module(section(4, vec("\x7f\x00\x00")))},
	{"shared memory", Unsupported, module(section(5, vec("\x03\x01\x01")))},
	{"memory of 257", MemorySize, module(section(5, vec("\x00"+leb(257))))},
	{"two memories", TooMany, module(section(5, vec("\x00\x00", "\x00\x00")))},
	{"global of another", BadIndex, module(section(6, vec("\x7f\x00\x23\x00\x0b")))},
	{"global half constant", Malformed, module(section(6, vec("\x7f\x02\x41\x00\x0b")))},
	{"global computed", Unsupported, module(section(6, vec("\x7f\x00\x41\x00\x41\x00\x6a\x0b")))},
	{"export of no function", BadIndex, module(section(7, vec("\x01a\x00\x00")))},
	{"export of no memory", BadIndex, module(section(7, vec("\x01a\x02\x00")))},
	{"export of a tag", Unsupported, module(section(7, vec("\x01a\x04\x00")))},
	{"export twice", BadExport,
		module(onePage, section(7, vec("\x01a\x02\x00", "\x01a\x02\x00")))},
	{"export of ours", BadExport,
		module(onePage, section(7, vec(text(ReservedExport+"fuel")+"\x02\x00")))},
	{"start of no function", BadIndex, module(section(8, "\x00"))},
	{"start with a parameter", BadStart, module(section(1, vec("\x60\x01\x7f\x00")),
		section(3, vec("\x00")), section(8, "\x00"), oneBody)},
	{"element without table", BadIndex, module(section(9, vec("\x00\x41\x00\x0b\x00")))},
	{"element of no function", BadIndex, module(section(4, vec("\x70\x00\x01")),
		section(9, vec("\x00\x41\x00\x0b\x01\x00")))},
	{"element flags", Malformed, module(section(9, vec("\x08\x00\x00")))},
	{"65537 entries", TooMany, module(oneType, oneFunction,
		section(4, vec("\x70\x00\x01")),
		section(9, vec("\x00\x41\x00\x0b"+leb(65537)+strings.Repeat("\x00", 65537))),
		oneBody)},
	{"data without memory", BadIndex, module(section(11, vec("\x00\x41\x00\x0b\x00")))},
	{"data flags", Malformed, module(section(11, vec("\x03\x00\x00")))},
	{"data longer than section", Malformed,
		module(onePage, section(11, vec("\x00\x41\x00\x0b\x7f\x00")))},
	{"data miscounted", Malformed, module(section(12, "\x01"), section(11, vec()))},
	{"5000 locals", TooManyLocals, module(oneType, oneFunction,
		section(10, vec(text(vec(leb(5000)+"\x7f")+"\x0b"))))},
	{"2^32-1 locals", TooManyLocals, module(oneType, oneFunction,
		section(10, vec(text(vec("\xff\xff\xff\xff\x0f\x7f")+"\x0b"))))},
	{"our local", BadIndex, function("\x20\x00\x1a")},
	{"our global", BadIndex, function("\x23\x01\x1a")},
	{"set our global", BadIndex, function("\x42\x00\x24\x01")},
	{"call of nothing", BadIndex, function("\x10\x01")},
	{"indirect of no type", BadIndex, function("\x41\x00\x11\x01\x00")},
	{"indirect of no table", BadIndex, function("\x41\x00\x11\x00\x01")},
	{"reference to nothing", BadIndex, function("\xd2\x01\x1a")},
	{"label too far", BadIndex, function("\x0c\x01")},
	{"table label too far", BadIndex, function("\x41\x00\x0e\x01\x00\x01")},
	{"block of no type", BadIndex, function("\x02\x01\x0b")},
	{"block type of two bytes", BadIndex, function("\x02\xc0\x7f\x0b")},
	{"data drop of nothing", BadIndex, function("\xfc\x09\x00")},
	{"element drop of nothing", BadIndex, function("\xfc\x0d\x00")},
	{"memory init of nothing", BadIndex, function("\x41\x00\x41\x00\x41\x00\xfc\x08\x00\x00")},
	{"load without memory", BadIndex, module(oneType, oneFunction,
		section(10, vec(code("\x41\x00\x28\x02\x00\x1a"))))},
	{"second memory", Unsupported, function("\x3f\x01\x1a")},
	{"memory in alignment", Unsupported, function("\x41\x00\x28\x42\x00\x00\x1a")},
	{"atomic", Unsupported, function("\xfe\x03\x00")},
	{"tail call", Unsupported, function("\x12\x00")},
	{"exception", Unsupported, function("\x08\x00")},
	{"long vector number", Unsupported,
		function("\xfd\x8c\x80\x00" + strings.Repeat("\x00", 16) + "\x1a")},
	{"long bulk number", Unsupported, function("\xfc\x8b\x00\x00")},
	{"unknown bulk number", Unsupported, function("\xfc\x12\x00")},
	{"select of two types", Unsupported, function("\x1c\x02\x7f\x7f")},
	{"code inside a block", Malformed, module(oneType, oneFunction,
		section(10, vec(text("\x00\x02\x40\x0b"))))},
	{"code behind the end", Malformed, function("\x0b\x01")},
	{"nesting", TooComplex,
		function(strings.Repeat("\x02\x40", 1024) + strings.Repeat("\x0b", 1024))},
	{"branches", TooComplex, function(strings.Repeat("\x02\x40\x0b", 4097))},
	{"br_table", TooMany, function("\x41\x00\x0e" + leb(8193) + strings.Repeat("\x00", 8194))},
	{"grow without maximum", OpenTable, module(oneType, oneFunction,
		section(4, vec("\x70\x00\x01")),
		section(10, vec(code("\xd0\x70\x41\x01\xfc\x0f\x00\x1a"))))},
	{"large body", BodySize, function(strings.Repeat("\x01", 128<<10))},
}

func TestRefused(t *testing.T) {
	for _, c := range refused {
		m, problems := Check(c.module, Limits{})
		if m != nil || len(problems) == 0 {
			t.Errorf("%s: passed", c.name)
			continue
		}
		if problems[0].Code != c.code {
			t.Errorf("%s: refused for %v, want %s", c.name, problems[0], c.code)
		}
		if len(problems) != 1 {
			t.Errorf("%s: %d problems: %v", c.name, len(problems), problems)
		}
	}
}

// accepted lists well-formed modules at the edge of a rule.
var accepted = []struct {
	name   string
	module []byte
}{
	{"nothing", module()},
	{"custom sections",
		module(section(0, text("x")+"\xff"), section(0, ""), section(0, text("name")+"\x01"))},
	{"every kind of element segment", module(oneType, oneFunction,
		section(4, vec("\x70\x00\x09")), section(9, vec(
			"\x00\x41\x00\x0b"+vec("\x00"), "\x01\x00"+vec("\x00"),
			"\x02\x00\x41\x00\x0b\x00"+vec("\x00"), "\x03\x00"+vec("\x00"),
			"\x04\x41\x00\x0b"+vec("\xd2\x00\x0b"), "\x05\x70"+vec("\xd0\x70\x0b"),
			"\x06\x00\x41\x00\x0b\x70"+vec("\xd2\x00\x0b"), "\x07\x70"+vec("\xd2\x00\x0b"))),
		oneBody)},
	{"every kind of data segment", module(onePage, section(12, "\x03"),
		section(11, vec("\x00\x41\x00\x0b\x01x", "\x01\x01x", "\x02\x00\x41\x00\x0b\x01x")))},
	{"start", module(oneType, oneFunction, section(8, "\x00"),
		oneBody)},
	{"4096 locals", module(oneType, oneFunction,
		section(10, vec(text(vec(leb(4096)+"\x7f")+"\x0b"))))},
	{"511 nested", function(strings.Repeat("\x02\x40", 511) + strings.Repeat("\x0b", 511))},
	{"grow with maximum", function("\xd0\x70\x41\x01\xfc\x0f\x00\x1a")},
	{"vector of two bytes", function("\xfd\x0c" + strings.Repeat("\x00", 16) + "\xfd\x80\x01\x1a")},
	{"long numbers",
		function("\x41\x80\x80\x80\x80\x78\x1a" +
			"\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x1a")},
}

func TestAccepted(t *testing.T) {
	for _, c := range accepted {
		if m, problems := Check(c.module, Limits{}); m == nil || len(problems) > 0 {
			t.Errorf("%s: refused: %v", c.name, problems)
		}
	}
}

// TestTruncated cuts accepted modules short at every byte: what remains is refused or, where the
// cut falls between sections, still whole; it never panics.
func TestTruncated(t *testing.T) {
	for _, c := range accepted {
		for n := range len(c.module) {
			m, problems := Check(c.module[:n], Limits{})
			if (m == nil) != (len(problems) > 0) {
				t.Fatalf("%s cut at %d: module %v, problems %v", c.name, n, m, problems)
			}
		}
	}
}

func TestAllIndependentProblemsAreNamed(t *testing.T) {
	large := text("\x00" + strings.Repeat("\x01", 128<<10) + "\x0b")
	m := module(section(1, vec(voidType)), section(3, vec("\x00", "\x00")),
		section(7, vec("\x01a\x00\x00", "\x01a\x00\x00")), section(10, vec(large, large)))
	_, problems := Check(m, Limits{})
	var codes []Code
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	if got := fmt.Sprint(codes); got != "[P022 P012 P012]" {
		t.Errorf("got %s: %v", got, problems)
	}
}

func TestNamesInProblems(t *testing.T) {
	names := section(0, text("name")+"\x01"+text(vec("\x00"+text("pick"))))
	m := module(oneType, oneFunction, names,
		section(10, vec(code("\x20\x00\x1a"))))
	_, problems := Check(m, Limits{})
	want := `P005: local 0 does not exist; there are 0 (in function 0 (pick) at byte 0x28)`
	if len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("got %v, want %s", problems, want)
	}
	if m[0x28] != 0x00 || m[0x27] != 0x20 {
		t.Errorf("the offset does not point at the index")
	}
}

// survivors names the modules in bad/ that are well formed: fuel, the memory limit or the stack
// limit stops them when they run.
const survivors = "fill_loop inf_recurse mem_grow mem_grow_touch s_brt1000 s_brt250 s_brt4000 " +
	"s_if1000 s_if2000 s_if4000 s_if500 s_nest250 s_nest500 s_str1000 s_str250 s_str4000 start_loop"

func TestHostileModules(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t), "prototypes", "wasm", "bad", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no hostile modules: %v", err)
	}
	for _, file := range files {
		wasm, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".wasm")
		_, problems := Check(wasm, Limits{})
		survives := strings.Contains(" "+survivors+" ", " "+name+" ")
		if survives != (len(problems) == 0) {
			t.Errorf("%s: survives %v, problems %v", name, !survives, problems)
		}
	}
}

// TestMemoryIsBounded: what is allocated is a small multiple of what was read.
func TestMemoryIsBounded(t *testing.T) {
	var before, after runtime.MemStats
	for _, c := range refused {
		runtime.ReadMemStats(&before)
		Check(c.module, Limits{})
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		if limit := uint64(100*len(c.module) + 65536); used > limit {
			t.Errorf("%s: %d bytes allocated for %d", c.name, used, len(c.module))
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, c := range refused {
		f.Add(c.module)
	}
	for _, c := range accepted {
		f.Add(c.module)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		before := bytes.Clone(wasm)
		m, problems := Check(wasm, Limits{})
		if !bytes.Equal(before, wasm) {
			t.Fatal("the module was changed")
		}
		if (m == nil) == (len(problems) == 0) {
			t.Fatalf("module %v, problems %v", m, problems)
		}
		if m == nil {
			return
		}
		for _, b := range m.Bodies {
			at := 0
			Instructions(b.Code, func(in Instruction) {
				if in.At != at || in.End <= in.At {
					t.Fatalf("instruction %+v begins at %d", in, at)
				}
				at = in.End
			})
			if at != len(b.Code) {
				t.Fatalf("instructions end at %d of %d", at, len(b.Code))
			}
		}
	})
}
