package plugins

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// traceEnv turns this test program into the process that finds the place of a trap.
const traceEnv = "ENGINE_TEST_TRACE"

// saving is a bench whose host saves the inputs of faults, and the folder.
func saving(t *testing.T) (*bench, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(traceEnv, "1")
	dir := filepath.Join(t.TempDir(), "faults")
	return newBenchWith(t, Options{FaultDir: dir, Tracer: []string{self, "-test.run=^$"},
		Offered: everything}), dir
}

// saved waits for the latest input and reads it.
func (b *bench) saved(dir string) *Input {
	b.t.Helper()
	b.saver.idle.Wait()
	names, err := filepath.Glob(filepath.Join(dir, "*.bin"))
	if err != nil || len(names) == 0 {
		b.t.Fatalf("nothing was saved: %v %s", err, b.log)
	}
	newest := names[0]
	for _, name := range names {
		a, _ := os.Stat(name)
		if c, _ := os.Stat(newest); a.ModTime().After(c.ModTime()) {
			newest = name
		}
	}
	file, err := os.ReadFile(newest)
	if err != nil {
		b.t.Fatal(err)
	}
	in, err := ReadInput(file)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

// replays decides a saved fault again and wants the same end.
func (b *bench) replays(in *Input, wasm []byte) *Replayed {
	b.t.Helper()
	r, err := Replay(b.t.Context(), wasm, in)
	if err != nil {
		b.t.Fatal(err)
	}
	if !r.Exact || !r.Same {
		b.t.Fatalf("replayed %+v\nfault %+v\nsaved %+v", r, r.Fault, in.Fault)
	}
	return r
}

// TestReplay: a fault after any number of steps is decided again exactly, from the module's birth
// or from a checkpoint, and its place is known.
func TestReplay(t *testing.T) {
	wasm := guestFile(t, "lines/lines")
	for _, c := range []struct {
		steps, changed int
		budget         uint32
		class          abi.FaultClass
		at             string
	}{
		{0, 0, 700, abi.FaultTrap, "lines.c:43 (divide)"},
		{50, 20, 700, abi.FaultTrap, "lines.c:43 (divide)"},
		{900, 40, 700, abi.FaultTrap, "lines.c:43 (divide)"}, // Beyond the journal's bound.
		{900, 40, 701, abi.FaultReturnedError, ""},
	} {
		b, dir := saving(t)
		b.use("lines", wasm)
		h := &b.mock.view.Header
		for i := range c.steps {
			h.TokenBudget = uint32(1000 + i)
			if _, err := b.decide(c.changed); err != nil {
				t.Fatal(err)
			}
		}
		if based := b.order.current.journal != nil && b.order.current.journal.base != nil; based !=
			(c.steps > 500) {
			t.Fatalf("%d steps: a checkpoint: %v", c.steps, based)
		}
		h.TokenBudget = c.budget
		_, err := b.decide(c.changed)
		f := asFault(t, err, c.class)
		in := b.saved(dir)
		if in.Fault != *f || in.Fault.Step != h.Step || in.Fault.Fuel == 0 {
			t.Errorf("saved %+v\nfault %+v", in.Fault, *f)
		}
		r := b.replays(in, wasm)
		if c.at != "" && r.At != c.at {
			t.Errorf("at %q, want %q", r.At, c.at)
		}
		log := b.log.String()
		for _, want := range []string{"policy=lines@1.0.0", fmt.Sprintf("step=%d", h.Step), dir,
			`reproduce="engine policy replay lines.wasm --input `, `at="` + c.at} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
	}
}

// TestReplayJudged: answers that the host or a scheduler found wrong are replayed too, and so are
// the faults of every call.
func TestReplayJudged(t *testing.T) {
	b, dir := saving(t)
	b.use("fcfs", shipped(t, "fcfs"))
	for range 5 {
		if _, err := b.decide(3); err != nil {
			t.Fatal(err)
		}
	}
	b.ReportFault(abi.FaultBadOutput, "nothing runs although it could")
	in := b.saved(dir)
	b.replays(in, shipped(t, "fcfs"))
	if answer, _ := in.answer(); len(answer) == 0 {
		t.Error("the answer was not saved")
	}

	b, dir = saving(t)
	b.use("remembers", guestFile(t, "remembers"))
	for range 400 { // With tenants and events, beyond the journal's bound.
		b.mock.happen()
		if _, err := b.decide(30); err != nil {
			t.Fatal(err)
		}
	}
	heard, err := b.decide(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.hears(82-uint32(heard[0].Reason), 1); err != nil {
		_ = asFault(t, err, abi.FaultTrap)
		b.replays(b.saved(dir), guestFile(t, "remembers"))
	}
}

// TestReplayHandedOver: what a module was given at a swap is a part of its input.
func TestReplayHandedOver(t *testing.T) {
	b, dir := saving(t)
	wasm := guestFile(t, "remembers")
	b.use("one", wasm)
	if _, err := b.hears(50, 1); err != nil {
		t.Fatal(err)
	}
	b.use("two", wasm)
	_, err := b.hears(32, 1)
	f := asFault(t, err, abi.FaultTrap)
	if f.Call != abi.ExportObserve {
		t.Fatalf("%+v", f)
	}
	b.replays(b.saved(dir), wasm)
}

// TestReplayElsewhere: another module is shown the last step alone, and may be sound.
func TestReplayElsewhere(t *testing.T) {
	b, dir := saving(t)
	b.use("lines", guestFile(t, "lines/lines"))
	for range 600 {
		if _, err := b.decide(40); err != nil {
			t.Fatal(err)
		}
	}
	b.mock.view.Header.TokenBudget = 700
	_, err := b.decide(0)
	asFault(t, err, abi.FaultTrap)
	in := b.saved(dir)
	r, err := Replay(t.Context(), shipped(t, "fcfs"), in)
	if err != nil || r.Exact || r.Same || r.Fault != nil || r.Steps != 1 || len(r.Answer) == 0 {
		t.Fatalf("%+v: %v", r, err)
	}
	want, err := Replay(t.Context(), guestFile(t, "quiet"), in)
	if err != nil || want.Fault != nil {
		t.Fatalf("%+v: %v", want, err)
	}
	table := newBench(t)
	table.use("fcfs", shipped(t, "fcfs"))
	sound, err := table.Decide(&b.mock.view, nil)
	if err != nil || len(sound) != len(r.Answer) || sound[0] != r.Answer[0] {
		t.Errorf("the table is not that of the fault: %v, want %v (%v)", r.Answer, sound, err)
	}
}

// TestSavedFolder: the folder is private, and holds a bounded number of files.
func TestSavedFolder(t *testing.T) {
	b, dir := saving(t)
	b.saver.tracer = nil
	b.use("fcfs", shipped(t, "fcfs"))
	b.SetRules(Rules{Faults: maxFaults})
	for range savedFiles + 5 {
		b.settle()
		if _, err := b.decide(1); err != nil {
			t.Fatal(err)
		}
		b.ReportFault(abi.FaultBadOutput, "for the test")
		b.saver.idle.Wait()
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(names) != savedFiles {
		t.Errorf("%d files", len(names))
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, names[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// input is a small saved fault.
func input(t testing.TB) []byte {
	b := newBenchWith(t, Options{FaultDir: t.TempDir()})
	b.use("quiet", guestFile(t, "quiet"))
	b.mock.fill(3)
	if _, err := b.decide(1); err != nil {
		t.Fatal(err)
	}
	j := b.order.current.journal
	var file bytes.Buffer
	in := b.order.current.input(j, Fault{Class: abi.FaultTrap, Step: 7}, false)
	if err := in.encode(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestReadInputRefuses: a file that was cut, or changed anywhere, is refused or read, and never
// more.
func TestReadInputRefuses(t *testing.T) {
	file := input(t)
	if _, err := ReadInput(file); err != nil {
		t.Fatal(err)
	}
	for n := range file {
		if _, err := ReadInput(file[:n]); err == nil {
			t.Fatalf("cut after %d bytes it is read", n)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		bad := bytes.Clone(file)
		bad[chance.IntN(len(bad))] ^= byte(1 + chance.IntN(255))
		if in, err := ReadInput(bad); err == nil {
			_, _ = Replay(t.Context(), guestFile(t, "quiet"), in)
		}
	}
}

// FuzzReadInput gives the parser what lies inside of the compression.
func FuzzReadInput(f *testing.F) {
	in, err := ReadInput(input(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(in.entries, []byte(in.Answer), int16(in.Slots), int8(0))
	f.Add([]byte{entryLoad, 3, 0, 0, 0, 1, 0, 0, 0, 9, entrySave}, []byte{}, int16(9), int8(1))
	wasm := guestFile(f, "quiet")
	f.Fuzz(func(t *testing.T, entries, answer []byte, slots int16, pages int8) {
		changed := *in
		changed.entries, changed.Answer, changed.Slots = entries, string(answer), int(slots)
		if pages > 0 {
			c := &checkpoint{Pages: int(pages), Regions: make([]checkpointRegion, 9),
				memory: make([]byte, int(pages)*pageBytes), Globals: []uint64{uint64(slots)}}
			changed.base, changed.Checkpoint = c, c
		}
		var file bytes.Buffer
		if err := changed.encode(&file); err != nil {
			t.Fatal(err)
		}
		read, err := ReadInput(file.Bytes())
		if err != nil {
			return
		}
		if !bytes.Equal(read.entries, entries) {
			t.Fatal("the journal is another one")
		}
		_, _ = Replay(t.Context(), wasm, read)
	})
}

// TestReplayAsksAfterTrap: what the module says of its trap is another call, and the place stays
// that of the trap.
func TestReplayAsksAfterTrap(t *testing.T) {
	wasm := guestFile(t, "says_after_trap")
	b, dir := saving(t)
	b.use("says", wasm)
	_, err := b.decide(0)
	if f := asFault(t, err, abi.FaultTrap); !strings.HasSuffix(f.Detail, ": oops") {
		t.Errorf("%v", f)
	}
	r := b.replays(b.saved(dir), wasm)
	if !strings.HasPrefix(r.At, "byte ") || !strings.HasSuffix(r.At, "(pol_decide)") {
		t.Errorf("at %q", r.At)
	}
}

// TestNoFaultFolder: where no input can be saved, the host works without.
func TestNoFaultFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, Options{FaultDir: filepath.Join(file, "faults")})
	if !strings.Contains(b.log.String(), "level=WARN") {
		t.Errorf("the log says %q", b.log)
	}
	b.use("trap", guestFile(t, "says_after_trap"))
	_, err := b.decide(0)
	_ = asFault(t, err, abi.FaultTrap)
}
