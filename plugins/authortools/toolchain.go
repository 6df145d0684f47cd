package authortools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tool is a compiler that was found.
type Tool struct {
	Words   []string // the program and its first arguments
	Version string   // the first line of what it says of itself
	Extra   []string // what {linker} stands for
	ZigCC   bool     // a C compiler that is Zig's: it has other names for some flags
}

// MissingTool is the error of a language whose tools are not installed.
type MissingTool struct {
	What    string // what is missing
	Install string // one line that installs it
}

func (m *MissingTool) Error() string { return fmt.Sprintf("%s; install it: %s", m.What, m.Install) }

// The lines that install what is missing. They are for Debian where there is a choice.
const (
	installC    = "apt-get install -y --no-install-recommends clang-14 lld-14"
	installRust = "apt-get install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld-14"
	installZig  = "python3 -m pip install ziglang==0.15.2"
	installGo   = "see https://go.dev/dl for Go 1.24 or later"
	installAS   = "npm install --save-dev assemblyscript@0.28.20"
	installWAT  = "apt-get install -y --no-install-recommends wabt"
)

// FindTool looks for the compiler behind a placeholder. dir is the policy's folder, absolute: npm
// installs there or above. The error is a *MissingTool.
func FindTool(ctx context.Context, placeholder, dir string) (Tool, error) {
	switch placeholder {
	case "{cc}":
		return findC(ctx)
	case "{rustc}":
		return findRust(ctx)
	case "{go}":
		return findGo(ctx)
	case "{zig}":
		return findZig(ctx)
	case "{asc}":
		tool, err := first(ctx, &MissingTool{"AssemblyScript's asc was not found", installAS},
			append(npmTool(dir, "asc", "--version"), []string{"asc", "--version"})...)
		tool.Version = "asc " + strings.TrimPrefix(tool.Version, "Version ")
		return tool, err
	case "{wat2wasm}":
		tool, err := first(ctx, &MissingTool{"no wat2wasm was found", installWAT},
			append(npmTool(dir, "wat2wasm", "--version"), []string{"wat2wasm", "--version"})...)
		tool.Version = "wat2wasm " + tool.Version
		return tool, err
	}
	return Tool{}, fmt.Errorf("no compiler is called %s", placeholder)
}

// probeTime bounds how long a compiler may take to say its version.
const probeTime = 20 * time.Second

// says runs a command and returns what it prints.
func says(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	return strings.TrimSpace(string(text)), err
}

// first is the first of several commands that works. The last word of each asks for the version.
func first(ctx context.Context, missing error, commands ...[]string) (Tool, error) {
	for _, command := range commands {
		text, err := says(ctx, command...)
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(text, "\n")
		return Tool{Words: command[:len(command)-1], Version: line}, nil
	}
	return Tool{}, missing
}

// npmTool lists where npm would have put a program, from a folder upwards.
func npmTool(dir, name, version string) [][]string {
	var list [][]string
	for {
		at := filepath.Join(dir, "node_modules", ".bin", name)
		if _, err := os.Stat(at); err == nil {
			list = append(list, []string{at, version})
		}
		up := filepath.Dir(dir)
		if up == dir {
			return list
		}
		dir = up
	}
}

// findC takes $POL_CC as it is, then a clang that knows wasm32 and has its linker, then Zig's.
func findC(ctx context.Context) (Tool, error) {
	if own := strings.Fields(os.Getenv("POL_CC")); len(own) > 0 {
		tool, err := first(ctx, fmt.Errorf("$POL_CC is %q, which does not run", own),
			append(own, "--version"))
		tool.ZigCC = strings.Contains(strings.Join(own, " "), "zig")
		return tool, err
	}
	names := []string{"clang"}
	for version := 21; version >= 14; version-- {
		names = append(names, fmt.Sprintf("clang-%d", version))
	}
	for _, name := range names {
		targets, err := says(ctx, name, "--print-targets")
		if err != nil || !strings.Contains(targets, "wasm32") {
			continue
		}
		linker, err := says(ctx, name, "-print-prog-name=wasm-ld")
		if err != nil {
			continue
		}
		if _, err := exec.LookPath(linker); err != nil {
			continue
		}
		return first(ctx, nil, []string{name, "--version"})
	}
	tool, err := findZig(ctx)
	if err != nil {
		what := "no clang that knows wasm32 and has its wasm-ld was found"
		return Tool{}, &MissingTool{what, installC}
	}
	tool.Words = append(tool.Words, "cc")
	tool.Version, tool.ZigCC = "zig cc "+tool.Version, true
	return tool, nil
}

// findZig wants 0.15: the language still changes.
func findZig(ctx context.Context) (Tool, error) {
	missing := &MissingTool{"no Zig 0.15 was found", installZig}
	commands := [][]string{{"zig", "version"}, {"python3", "-m", "ziglang", "version"}}
	for _, command := range commands {
		tool, err := first(ctx, missing, command)
		if err == nil && strings.HasPrefix(tool.Version, "0.15.") {
			tool.Version = "zig " + tool.Version
			return tool, nil
		}
	}
	return Tool{}, missing
}

// findRust takes the first rustc with libcore for wasm32, and a linker if it has none of its own.
func findRust(ctx context.Context) (Tool, error) {
	candidates := []string{"rustc", "/usr/bin/rustc"}
	if own := os.Getenv("POL_RUSTC"); own != "" {
		candidates = []string{own}
	}
	for _, name := range candidates {
		libs, err := rustSays(ctx, name, "--print", "target-libdir", "--target",
			"wasm32-unknown-unknown")
		if err != nil {
			continue
		}
		if found, _ := filepath.Glob(filepath.Join(libs, "libcore-*.rlib")); len(found) == 0 {
			continue
		}
		tool, err := first(ctx, nil, []string{name, "--version"})
		if err != nil {
			continue
		}
		tool.Extra, err = rustLinker(ctx, name)
		return tool, err
	}
	install := installRust
	if _, err := exec.LookPath("rustup"); err == nil {
		install = "rustup target add wasm32-unknown-unknown"
	}
	what := "no rustc with the target wasm32-unknown-unknown was found"
	return Tool{}, &MissingTool{what, install}
}

// rustSays returns what rustc prints on stdout alone: a toolchain manager talks on stderr.
func rustSays(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	text, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	return string(bytes.TrimSpace(text)), err
}

// rustLinker names a linker if rustc brings none, as Debian's does not.
func rustLinker(ctx context.Context, rustc string) ([]string, error) {
	root, err := rustSays(ctx, rustc, "--print", "sysroot")
	if err != nil {
		return nil, err
	}
	own, _ := filepath.Glob(filepath.Join(root, "lib", "rustlib", "*", "bin", "rust-lld*"))
	if len(own) > 0 {
		return nil, nil
	}
	names := []string{"wasm-ld"}
	for version := 21; version >= 14; version-- {
		names = append(names, fmt.Sprintf("wasm-ld-%d", version))
	}
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return []string{"-C", "linker=" + name}, nil
		}
	}
	return nil, &MissingTool{"rustc has no linker for WebAssembly", installRust}
}

// findGo wants 1.24, the first that exports functions.
func findGo(ctx context.Context) (Tool, error) {
	missing := &MissingTool{"no Go 1.24 or later was found", installGo}
	tool, err := first(ctx, missing, []string{"go", "version"})
	if err != nil {
		return tool, err
	}
	var major, minor int
	_, version, _ := strings.Cut(tool.Version, "go version go")
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return Tool{}, errors.Join(missing, err)
	}
	if major == 1 && minor < 24 {
		return Tool{}, missing
	}
	return tool, nil
}
