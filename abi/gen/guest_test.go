package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool finds the first of some programs. Without any it skips, or fails with
// ENGINE_REQUIRE_TOOLCHAINS=1.
func tool(t *testing.T, names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("ENGINE_REQUIRE_TOOLCHAINS") == "1" {
		t.Fatalf("none of %q is installed", names)
	}
	t.Skipf("none of %q is installed", names)
	return ""
}

// printed runs a program and fails the test with what it printed.
func printed(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}

func source(t *testing.T) *schema {
	s, err := load(filepath.Join(abiDir, "abi.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// layoutC is a C file that compiles only if pol.h lays every field where abi.toml says.
func layoutC(s *schema) string {
	var b strings.Builder
	b.WriteString("#include \"pol.h\"\n")
	for _, r := range s.Records {
		for _, f := range r.Fields {
			where := fmt.Sprintf("offsetof(pol_%s, %s)", r.Name, cField(f.Name))
			size := fmt.Sprintf("sizeof(((pol_%s *)0)->%s)", r.Name, cField(f.Name))
			fmt.Fprintf(&b, "POL_ASSERT(%s == %d, \"\");\n", where, f.Offset)
			fmt.Fprintf(&b, "POL_ASSERT(%s == %d, \"\");\n", size, f.bytes())
		}
		fmt.Fprintf(&b, "POL_ASSERT(sizeof(pol_%s) == %d, \"\");\n", r.Name, r.Size)
	}
	b.WriteString(`
static int init(pol_config *c, uint32_t slots) { (void)c, (void)slots; return 0; }
static int decide(const pol_step *s, pol_out *o) { (void)s, (void)o; return 0; }
POL_POLICY("layout", "1", init, decide)
`)
	return b.String()
}

func TestHeaderForCLaysOutTheRecords(t *testing.T) {
	for _, c := range []struct {
		name, file string
		tools      []string
		flags      []string
	}{
		{"C", "layout.c", []string{"gcc", "clang-14", "clang"}, []string{"-std=c11"}},
		{"C++", "layout.cc", []string{"g++", "clang-14", "clang"}, []string{"-std=c++17"}},
		{"wasm32", "layout.c", []string{"clang-14"},
			[]string{"-std=c11", "--target=wasm32", "-ffreestanding"}},
		{"wasm32 C++", "layout.cc", []string{"clang-14"},
			[]string{"-std=c++17", "--target=wasm32", "-ffreestanding"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(layoutC(source(t))), 0o644); err != nil {
				t.Fatal(err)
			}
			flags := append(c.flags, "-Wall", "-Wextra", "-Werror", "-I../guest/c", "-fsyntax-only")
			printed(t, tool(t, c.tools...), append(flags, file)...)
		})
	}
}

func TestHelpersForC(t *testing.T) {
	cc := tool(t, "gcc", "clang-14", "clang")
	program := filepath.Join(t.TempDir(), "pol_test")
	printed(t, cc, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I../guest/c",
		"../guest/c/pol_test.c", "-o", program)
	printed(t, program)
}

func TestRustLaysOutTheRecords(t *testing.T) {
	rustc := tool(t, "/usr/bin/rustc", "rustc")
	var program, want strings.Builder
	view, err := filepath.Abs("../guest/rust/src/abi.rs")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&program, "#![allow(dead_code)]\n#[path = %q]\nmod abi;\nfn main() {\n", view)
	for _, r := range source(t).Records {
		fmt.Fprintf(&program, "let r = abi::%s::default();\n", goName(r.Name))
		program.WriteString("let at = &r as *const _ as usize;\n")
		for _, f := range r.Fields {
			fmt.Fprintf(&program, "println!(\"%s.%s {} {}\", &r.%s as *const _ as usize - at, "+
				"std::mem::size_of_val(&r.%s));\n", r.Name, f.Name, f.Name, f.Name)
			fmt.Fprintf(&want, "%s.%s %d %d\n", r.Name, f.Name, f.Offset, f.bytes())
		}
	}
	program.WriteString("}\n")
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "layout.rs"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(program.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	printed(t, rustc, "--edition", "2021", file, "-o", binary)
	if got := printed(t, binary); got != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got, want.String())
	}
}

func TestHelpersForRust(t *testing.T) {
	rustc := tool(t, "/usr/bin/rustc", "rustc")
	program := filepath.Join(t.TempDir(), "pol_test")
	printed(t, rustc, "--edition", "2021", "--test", "--crate-name", "pol", "-D", "warnings",
		"-C", "opt-level=1", "-C", "debug-assertions=on", "../guest/rust/src/lib.rs", "-o", program)
	printed(t, program, "--quiet", "--test-threads=1") // A module has one thread.
}

func TestTemplateInText(t *testing.T) {
	assemble := tool(t, "wat2wasm")
	out := filepath.Join(t.TempDir(), "fcfs.wasm")
	printed(t, assemble, "../guest/wat/fcfs.wat", "-o", out)
	built, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../guest/wat/fcfs.wasm")
	if err != nil || !bytes.Equal(built, have) {
		t.Errorf("guest/wat/fcfs.wasm is not what fcfs.wat gives (%v)", err)
	}
}

// TestHelpersForZig compiles the SDK natively, which proves the layout of the records, and runs its
// tests.
func TestHelpersForZig(t *testing.T) {
	zig := []string{"zig"}
	if _, err := exec.LookPath("zig"); err != nil {
		zig = []string{tool(t, "python3"), "-m", "ziglang"}
		if err := exec.Command(zig[0], append(zig[1:], "version")...).Run(); err != nil {
			t.Skip("neither zig nor python's ziglang is installed")
		}
	}
	dir := t.TempDir()
	args := append(zig[1:], "test", "--cache-dir", dir, "--global-cache-dir", dir,
		"../guest/zig/src/pol.zig")
	printed(t, zig[0], args...)
}

// TestHelpersForAssemblyScript compiles the tests of the SDK and runs them under node.
func TestHelpersForAssemblyScript(t *testing.T) {
	asc, node := tool(t, "asc"), tool(t, "node")
	dir := t.TempDir()
	sdk, err := filepath.Abs("../guest/assemblyscript")
	if err != nil {
		t.Fatal(err)
	}
	// The compiler finds "pol/assembly" in a folder that is called pol.
	if err := os.CopyFS(filepath.Join(dir, "pol"), os.DirFS(sdk)); err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(dir, "test.wasm")
	printed(t, asc, filepath.Join(dir, "pol", "tests", "pol_test.ts"), "-o", module,
		"--runtime", "stub", "--path", dir)
	got := printed(t, node, "-e", `const none = () => 0;
const imports = { env: { abort: none }, pol_v1: { log: none, log_level: none, granted: () => 0n } };
WebAssembly.instantiate(require("fs").readFileSync(process.argv[1]), imports)
  .then(({ instance }) => console.log(instance.exports.run()));`, module)
	if got = strings.TrimSpace(got); got != "0" {
		t.Errorf("the expectation numbered %s in pol_test.ts does not hold", got)
	}
}
