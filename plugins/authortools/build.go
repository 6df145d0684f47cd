package authortools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/policyfile"
)

// Built is a module that was made.
type Built struct {
	File    *policyfile.File
	Path    string // of the module, below the folder that Build was given
	Wasm    []byte
	Tool    string // the compiler's own words
	Took    time.Duration
	Printed string // what the compiler said although it succeeded
}

// record is what is kept beside a module of how it was made.
type record struct {
	Tool     string     `json:"tool"`
	Commands [][]string `json:"commands"` // with placeholders, so that it is the same elsewhere
	Flags    []string   `json:"flags,omitempty"`
	ABI      string     `json:"abi"`
	SHA256   string     `json:"sha256"`
}

// Build makes the module NAME.wasm in a policy's folder by its policy.toml, brings
// policy.schema.json up to date, and records tool and flags in NAME.build.json.
func Build(ctx context.Context, dir string, flags []string) (*Built, error) {
	file, err := policyfile.Read(filepath.Join(dir, "policy.toml"))
	if err != nil {
		return nil, err
	}
	b := &Built{File: file, Path: filepath.Join(dir, file.Name+".wasm")}
	begin := time.Now()
	if err := b.run(ctx, dir, flags); err != nil {
		return nil, err
	}
	b.Took = time.Since(begin)
	if b.Wasm, err = os.ReadFile(b.Path); err != nil {
		return nil, fmt.Errorf("the build made no module: %w", err)
	}
	sum := sha256.Sum256(b.Wasm)
	note, err := json.MarshalIndent(record{b.Tool, file.Build.Commands, flags,
		fmt.Sprintf("%d.%d", abi.Major, abi.Minor), hex.EncodeToString(sum[:])}, "", "  ")
	if err != nil {
		return nil, err
	}
	return b, writeFiles(dir, map[string][]byte{
		file.Name + ".build.json": append(note, '\n'),
		"policy.schema.json":      Schema(file),
	})
}

// run runs the commands in order.
func (b *Built) run(ctx context.Context, dir string, flags []string) error {
	source, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "policy-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	dirs := policyfile.Dirs{Source: source, SDK: filepath.Join(source, "sdk"), Tmp: tmp,
		Out: filepath.Join(source, b.File.Name+".wasm")}
	if _, err := os.Stat(dirs.SDK); err != nil {
		dirs.SDK = filepath.Join(tmp, "sdk")
		if err := unpackSDK(dirs.SDK); err != nil {
			return err
		}
	}
	for _, command := range b.File.Build.Commands {
		if err := b.one(ctx, command, dirs, flags); err != nil {
			return err
		}
	}
	return nil
}

// unpackSDK writes all SDKs as they lie in abi/guest, for a policy that brings none.
func unpackSDK(dir string) error {
	files := map[string][]byte{}
	for _, name := range []string{"c", "rust", "go", "zig", "assemblyscript"} {
		part, err := sdkFiles([]tree{{"guest/" + name, name}})
		if err != nil {
			return err
		}
		for at, text := range part {
			files[at] = text
		}
	}
	return writeFiles(dir, files)
}

// one runs one command.
func (b *Built) one(
	ctx context.Context, command []string, d policyfile.Dirs, flags []string,
) error {
	tool := Tool{Words: command[:1]}
	if strings.HasPrefix(command[0], "{") {
		var err error
		if tool, err = FindTool(ctx, command[0], d.Source); err != nil {
			return err
		}
		b.Tool = tool.Version
	} else {
		b.Tool = command[0] // The last one makes the module.
	}
	line := append(slices.Clone(tool.Words), expand(command[1:], tool, d, flags)...)
	run := exec.CommandContext(ctx, line[0], line[1:]...)
	run.Dir = d.Source
	run.Env = append(os.Environ(), "LC_ALL=C")
	if command[0] == "{go}" {
		run.Env = append(run.Env, "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=",
			"GOWORK=off", "GOPROXY=off")
	}
	printed, err := run.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, printed)
	}
	b.Printed += string(printed)
	return nil
}

// expand puts in what the words in braces stand for. A word {flags} or {linker} becomes several
// words, or none.
func expand(command []string, tool Tool, d policyfile.Dirs, flags []string) []string {
	names := strings.NewReplacer("{sdk}", d.SDK, "{out}", d.Out, "{tmp}", d.Tmp)
	var line []string
	for _, word := range command {
		switch {
		case word == "{flags}":
			line = append(line, flags...)
		case word == "{linker}":
			line = append(line, tool.Extra...)
		case tool.ZigCC && word == "-Wl,--stack-first":
		case tool.ZigCC && word == "--target=wasm32":
			line = append(line, "--target=wasm32-freestanding")
		default:
			line = append(line, names.Replace(word))
		}
	}
	return line
}
