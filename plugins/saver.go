package plugins

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Bounds of the folder of saved faults.
const (
	savedFiles = 32       // files that are kept, the latest
	savedBytes = 64 << 20 // bytes of all of them together, and of one
	traceTime  = 30 * time.Second
)

// saver writes the inputs of faults to files, beside the engine: one at a time, and what comes
// while it is busy is not kept.
type saver struct {
	dir    string
	tracer []string // the program that finds the place of a trap; nil: nobody does
	log    *slog.Logger

	mu   sync.Mutex
	busy bool
	idle sync.WaitGroup
}

// newSaver makes the folder, private to this user; nil without one, or when it cannot be made.
func newSaver(dir string, tracer []string, log *slog.Logger) *saver {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		log.Warn("the inputs of policy faults are not saved", "folder", dir, "error", err)
		return nil
	}
	return &saver{dir: dir, tracer: tracer, log: log}
}

// take saves what a sandbox was shown up to its fault. The sandbox is about to be thrown away: its
// journal is the saver's from here on. The engine does not wait.
func (v *saver) take(s *sandbox, f Fault, cuts bool) {
	j := s.journal
	s.journal = nil
	if v == nil || j == nil || len(j.entries) == 0 {
		return
	}
	in := s.input(j, f, cuts)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		v.log.Warn("policy fault input not saved: another one is being saved", "policy", f.Policy,
			"step", f.Step)
		return
	}
	v.busy = true
	wasm := s.g.spec.Wasm
	v.idle.Go(func() {
		v.save(in, wasm)
		v.mu.Lock()
		v.busy = false
		v.mu.Unlock()
	})
}

// input makes the content of a file.
func (s *sandbox) input(j *journal, f Fault, cuts bool) *Input {
	g := s.g
	in := &Input{base: j.base, entries: j.entries, InputAbout: InputAbout{
		Policy: g.label, Digest: g.digest, Config: g.config, Slots: g.slots, Decisions: g.capacity,
		Offered: g.offered, MemoryPages: g.limits.MemoryPages, InitFuel: g.limits.InitFuel,
		Fuel: g.limits.Fuel, Calibrated: g.calibrated, Level: s.born, Cuts: cuts, Lost: j.lost,
		Fault: f, Checkpoint: j.base,
	}}
	if f.Class == abi.FaultBadOutput {
		answer, _ := s.bytes(abi.BufferDecisions)
		in.Answer = base64.StdEncoding.EncodeToString(answer[:s.answered*abi.DecisionSize])
	}
	return in
}

// save writes the file, makes room for it, and tells where it is and how to run it again.
func (v *saver) save(in *Input, wasm []byte) {
	var file bytes.Buffer
	err := in.encode(&file)
	if err == nil && file.Len() > savedBytes {
		err = fmt.Errorf("it would be %d bytes; at most %d are kept", file.Len(), savedBytes)
	}
	name := ""
	if err == nil {
		name, err = v.write(in.Fault.Step, file.Bytes())
	}
	if err != nil {
		v.log.Error("policy fault input not saved", "policy", in.Policy, "step", in.Fault.Step,
			"error", err)
		return
	}
	v.log.Warn("policy fault input saved", "policy", in.Policy, "class", string(in.Fault.Class),
		"step", in.Fault.Step, "at", v.trace(wasm, file.Bytes()), "file", name,
		"reproduce", fmt.Sprintf("engine policy replay %s --input %s", moduleWord(in.Policy), name))
}

// moduleWord is how a module is named on a command line: what the binary ships by its name, others
// by a file that is called so.
func moduleWord(policy string) string {
	name, _, _ := strings.Cut(policy, "@")
	if strings.HasPrefix(name, "builtin:") {
		return name
	}
	return name + ".wasm"
}

// write puts a file into the folder under a name of its own, and removes the oldest beyond the
// bounds.
func (v *saver) write(step uint64, content []byte) (string, error) {
	if err := v.prune(len(content)); err != nil {
		return "", err
	}
	for i := range 1000 {
		name := filepath.Join(v.dir, fmt.Sprintf("%d.bin", step))
		if i > 0 {
			name = filepath.Join(v.dir, fmt.Sprintf("%d-%d.bin", step, i+1))
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(content)
		return name, errors.Join(err, f.Close())
	}
	return "", fmt.Errorf("%s has a thousand files of step %d", v.dir, step)
}

// prune removes the oldest files until another one of a size fits.
func (v *saver) prune(size int) error {
	names, err := filepath.Glob(filepath.Join(v.dir, "*.bin"))
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	total := int64(size)
	for _, name := range names {
		info, err := os.Lstat(name)
		if err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for len(files) > 0 && (len(files) >= savedFiles || total > savedBytes) {
		if err := os.Remove(filepath.Join(v.dir, files[0].Name())); err != nil {
			return err
		}
		total -= files[0].Size()
		files = files[1:]
	}
	return nil
}

// trace asks another process for the place of the trap: the module's own description of its source
// is read there, behind limits.
func (v *saver) trace(wasm, file []byte) string {
	if v.tracer == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, v.tracer[0], v.tracer[1:]...)
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(wasm)))
	cmd.Stdin = io.MultiReader(bytes.NewReader(size), bytes.NewReader(wasm), bytes.NewReader(file))
	said := &tail{limit: 4096}
	cmd.Stdout = said
	cmd.WaitDelay = time.Second
	if cmd.Run() != nil {
		return ""
	}
	var at struct{ At string }
	if json.Unmarshal(said.Bytes(), &at) != nil {
		return ""
	}
	return at.At
}

// TraceMain is what the program named by Options.Tracer calls: it reads a module, behind its length
// in four bytes, and a saved fault from stdin, limits itself, and writes the place of the trap to
// stdout. It returns the process's exit status.
func TraceMain(stdin io.Reader, stdout, stderr io.Writer) int {
	at, err := traceFrom(stdin)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(struct{ At string }{at})
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func traceFrom(stdin io.Reader) (string, error) {
	if err := limitProcess(); err != nil {
		return "", err
	}
	wasm, err := inputPart(stdin, int64(abi.LimitModuleBytes))
	if err != nil {
		return "", fmt.Errorf("reading the module: %w", err)
	}
	file, err := io.ReadAll(io.LimitReader(stdin, savedBytes+1))
	if err != nil {
		return "", fmt.Errorf("reading the saved fault: %w", err)
	}
	in, err := ReadInput(file)
	if err != nil {
		return "", err
	}
	r, err := play(context.Background(), wasm, in, true)
	if err != nil {
		return "", err
	}
	return r.At, nil
}
