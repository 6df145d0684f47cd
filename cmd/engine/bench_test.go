package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/bench"
)

// TestBenchModel measures the embedded model a little, saves the result and compares it.
func TestBenchModel(t *testing.T) {
	folder := t.TempDir()
	result, page := filepath.Join(folder, "a.json"), filepath.Join(folder, "a.html")
	got := invoke(t, "", "bench", "-p", "16", "-n", "2", "--batch", "1,3", "--repeat", "2",
		"--json", result, "--html", page)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"TEST", "pp16 ", "tg2 ", "tg2 x3 "} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "tg2 x3") ||
		strings.Count(string(text), "<rect") != 3 {
		t.Error("the page:", err)
	}
	got = invoke(t, "", "bench", "compare", result, result, "--least", "0.99")
	if got.code != 0 || !strings.Contains(got.out, "pp16") || got.err != "" {
		t.Errorf("%+v", got)
	}
	other := filepath.Join(folder, "c.json")
	if got = invoke(t, "", "bench", "-p", "16", "-n", "0", "--repeat", "1", "--numerics", "tdp",
		"--kv-dtype", "f32", "--json", other); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got = invoke(t, "", "bench", "compare", result, other)
	for _, want := range []string{"numerics: fma before, tdp after", "kv-dtype: f16 before, f32"} {
		if got.code != 0 || !strings.Contains(got.err, want) {
			t.Errorf("no %q in %+v", want, got)
		}
	}
	slower := filepath.Join(folder, "b.json")
	text, err := os.ReadFile(result)
	if err == nil {
		changed := strings.Replace(string(text), `"name": "pp16"`, `"name": "pp17"`, 1)
		err = os.WriteFile(slower, []byte(changed), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got = invoke(t, "", "bench", "compare", result, slower, "--least", "1.01")
	if got.code != 1 || !strings.Contains(got.err, "1.01 at least was asked for") {
		t.Errorf("a gate that nothing passes: %+v", got)
	}
}

// TestBenchBeside measures a model alone and beside a transfer, whose rate and cost are told.
func TestBenchBeside(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	got := invoke(t, "", "bench", "-p", "200", "-n", "3", "--repeat", "2", "--beside-transfer",
		"40MiB/s", "--json", file)
	if got.code != 0 || strings.Count(got.err, "   beside ") != 4 ||
		!strings.Contains(got.err, "the transfer alone takes ") ||
		!strings.Contains(got.out, "BESIDE") {
		t.Fatalf("%+v", got)
	}
	saved, err := bench.Read(file)
	if err != nil || saved.Settings["beside-transfer"] != "40MiB/s" {
		t.Fatalf("%v: %+v", err, saved)
	}
	rows := map[string]bench.Row{}
	for _, r := range saved.Rows {
		rows[r.Name] = r
	}
	for _, name := range []string{"pp200", "pp200 beside", "tg3 beside", "transfer alone"} {
		if !(rows[name].Value > 0) {
			t.Errorf("%s: %+v", name, rows[name])
		}
	}
	ratio, alone, beside := rows["pp200 beside ratio"], rows["pp200"], rows["pp200 beside"]
	for i, x := range ratio.Samples {
		if want := beside.Samples[i] / alone.Samples[i]; x != want || len(ratio.Samples) != 2 {
			t.Errorf("ratio %v of round %d is not %v", x, i, want)
		}
	}
}

// TestStreamCarries: a stream carries transfer after transfer while work lasts, tells its failure,
// and may be used again.
func TestStreamCarries(t *testing.T) {
	d := benchDevice{isa: "auto", activations: "int8", numerics: "fma", kvDType: "f16",
		beside: "unlimited"}
	device, cfg, err := d.open(d.isa)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	m, _, err := (&benchModel{benchDevice: d}).load(t.Context(), device, cfg, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openStream(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for range 2 {
		rate, err := s.beside(t.Context(), func() error {
			before := s.count.Load()
			eventually(t, patience, func() error {
				if n := s.count.Load(); n < before+3 {
					return fmt.Errorf("%d transfers", n)
				}
				return nil
			})
			return nil
		})
		if err != nil || !(rate > 0) {
			t.Errorf("%v bytes a second: %v", rate, err)
		}
	}
	broken := errors.New("the work's own")
	if _, err := s.beside(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := s.sender.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.beside(t.Context(), func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the transfer beside it: ") {
		t.Errorf("a sender that was closed: %v", err)
	}
}

// TestBenchKernels measures a type of weights on one row, and finds each limit beside it.
func TestBenchKernels(t *testing.T) {
	folder := t.TempDir()
	result, page := filepath.Join(folder, "a.json"), filepath.Join(folder, "a.html")
	o := &benchOptions{json: result, page: page, benchModel: benchModel{repeat: 1,
		benchDevice: benchDevice{threads: 2, isa: "auto", activations: "int8", numerics: "fma",
			kvDType: "f16"}}, benchKernels: benchKernels{kernels: true, far: 1 << 20,
		dtypes: []string{"Q4_0"}, rows: []int{1}}}
	var out, log strings.Builder
	if err := o.run(t.Context(), streams{nil, &out, &log}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"threads: at most ", " matmul q4_0 3072x576, 1 rows",
		" attention f16 decode x16 @ d2048", " norm 576, 1 rows"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	saved, err := bench.Read(result)
	if err != nil || saved.Kind != "kernels" || len(saved.Rows) != 4+5*2+7*2+3 {
		t.Fatalf("%v: %+v", err, saved)
	}
	for _, row := range saved.Rows {
		if !(row.Value > 0) || !(row.Share > 0) {
			t.Errorf("%+v", row)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "of limit") {
		t.Error("the page:", err)
	}
}

// TestBenchServing compares a whole engine with its model, on so few tokens that no stream is under
// way for long.
func TestBenchServing(t *testing.T) {
	t.Setenv(asEngine, "1") // of the process that makes the load
	file := filepath.Join(t.TempDir(), "a.json")
	got := invoke(t, "", "bench", "--serving", "--streams", "2", "--in", "8", "--out", "16",
		"--repeat", "1", "-t", "2", "--beside-transfer", "8MiB/s", "--activations", "bf16",
		"--json", file)
	if got.code != 0 || !strings.Contains(got.out, "served of bare") ||
		!strings.Contains(got.err, "numerics fma") {
		t.Fatalf("%+v", got)
	}
	saved, err := bench.Read(file)
	// A machine that stops for a second within these tokens measures them under way.
	cycles := saved.Settings["requests-per-stream"]
	said := strings.Contains(got.err, "end too soon to be measured under way") ||
		strings.Contains(got.err, "measuring whole requests")
	if cycles == "" || said != (cycles != "1") ||
		!strings.HasPrefix(saved.Settings[classSetting], "fma") {
		t.Errorf("%v: %s", saved.Settings, got.err)
	}
	if err != nil || saved.Kind != "serving" || len(saved.Rows) != 4+3+5 {
		t.Fatalf("%v: %+v", err, saved)
	}
	whole := 0.0
	for _, r := range saved.Rows {
		if !(r.Value > 0) && r.Name != "load generator" {
			t.Errorf("%+v", r)
		}
		if strings.Contains(r.Name, ": ") {
			whole += r.Value
		}
	}
	if whole < 99.9 || whole > 100.1 {
		t.Errorf("the stages are %v %% of the loop's time", whole)
	}
}

func TestFarBytes(t *testing.T) {
	root := t.TempDir()
	if got := farBytes(root); got != leastFar {
		t.Errorf("a system that tells nothing: %d", got)
	}
	for name, text := range map[string]string{"index0": "32K", "index3": "98304K", "index2": "x"} {
		folder := filepath.Join(root, "sys/devices/system/cpu/cpu0/cache", name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join(folder, "size"), []byte(text+"\n"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := farBytes(root); got != 2*96<<20 {
		t.Errorf("a cache of 96 MiB: %d", got)
	}
}

// asPeer makes this program play the peers that lie in the folder it names.
const asPeer = "ENGINE_TEST_AS_PEER"

// peerMain answers as the file says that is called like this program, if that knows the arguments.
func peerMain(folder string) int {
	text, err := os.ReadFile(filepath.Join(folder, filepath.Base(os.Args[0])+".txt"))
	want, answer, _ := strings.Cut(string(text), "\n")
	args := strings.Join(os.Args[1:], " ")
	if err != nil || !strings.HasSuffix(args, want) {
		fmt.Fprintln(os.Stderr, args)
		return 9
	}
	if once, ok := strings.CutPrefix(answer, "silent once "); ok {
		if os.WriteFile(filepath.Join(folder, "called"), nil, 0o600) != nil {
			return 9
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(os.Args[0])+".txt"),
			[]byte(want+"\n"+once), 0o600); err != nil {
			return 9
		}
		return 0
	}
	if answer == "silent" {
		fmt.Fprintln(os.Stderr, "no room")
		return 0
	}
	fmt.Println(answer)
	return 0
}

// TestBenchPeer compares with programs that write what the peers write, and take no other arguments
// than theirs.
func TestBenchPeer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	t.Setenv(asPeer, folder)
	play := func(name, args, answer string) string {
		path := filepath.Join(folder, name)
		err := os.WriteFile(path+".txt", []byte(args+"\n"+answer), 0o600)
		if _, missing := os.Lstat(path); missing != nil && err == nil {
			err = os.Symlink(self, path)
		}
		if err != nil {
			t.Skip("no symbolic links: ", err)
		}
		return path
	}
	model := filepath.Join(folder, "m.gguf")
	got := invoke(t, "", "quantize", "../../host/model/embedded/checkpoint", model)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	single := play("llama-bench", "-t 1 -fa 1 -r 1 -o json -p 0 -n 3 -d 0", `[{"avg_ts": 2.5}]`)
	run := func() result {
		return invoke(t, "", "bench", "--model", model, "-p", "0", "-n", "3", "--batch", "1,4",
			"-t", "1", "--repeat", "2", "--peer", single)
	}
	if got = run(); got.code != 0 || strings.Count(got.err, "peer      2.50") != 2 {
		t.Errorf("one sequence alone has a peer: %+v", got)
	}
	batched := "-t 1 -tb 1 -fa on --output-format jsonl -c 16 -npp 1 -ntg 3 -npl 4"
	play(peerBatched, batched, `{"speed_tg": 7.5}`)
	if got = run(); got.code != 0 || strings.Count(got.err, "peer      7.50") != 2 {
		t.Errorf("four sequences have one, too: %+v", got)
	}
	play(peerBatched, batched, `{"speed_pp": 7.5}`)
	if got = run(); got.code != 1 || !strings.Contains(got.err, `no rate "speed_tg"`) {
		t.Errorf("%+v", got)
	}
	play(peerBatched, "nothing", "")
	if got = run(); got.code != 1 ||
		!strings.Contains(got.err, "run the peer: llama-batched-bench: exit status 9: -m") {
		t.Errorf("%+v", got)
	}
	play(peerBatched, batched, `silent once {"speed_tg": 7.5}`)
	if got = run(); got.code != 0 || strings.Count(got.err, "peer      7.50") != 2 {
		t.Errorf("a peer that wrote nothing once is run again: %+v", got)
	}
	play(peerBatched, batched, "silent")
	if got = run(); got.code != 1 || !strings.Contains(got.err, "llama-batched-bench: the peer "+
		"wrote nothing, exit status 0; its messages: no room") {
		t.Errorf("one that never writes: %+v", got)
	}
}

func TestBenchRefuses(t *testing.T) {
	for want, args := range map[string]string{
		"nothing to measure":       "-p 0 -n 0",
		"does not go with a model": "--dtype f16",
		"takes 4096 positions":     "-p 4096",
		"--repeat 0":               "--repeat 0",
		"--batch 0: from 1 to 512": "--batch 0",
		"--batch 513: from 1 to":   "--batch 1,513",
		"at most 2048, the rows":   "--serving --streams 2049",
		"nothing was measured":     "--json no-such-folder/a.json",
		"--html: nothing was":      "--kernels --html no-such-folder/a.html",
		"several need --kernels":   "--isa avx2,plain",
		`isa has no value "avx"`:   "--isa avx,plain",
		`has no value "neon"`:      "--kernels --isa plain,neon",
		"0: as many as the":        "-t -1",
		`"int8"? (one of: int8`:    "--activations int4",
		"one of: fma, tdp":         "--numerics sse",
		`did you mean "f16"?`:      "--kv-dtype fp16",
		`set numerics = "tdp"`:     "--isa amx",
		"threads is out of range":  "--serving -t 5000",
		"choose one":               "--serving --kernels",
		"not go with --url":        "--url http://a --isa avx2",
		"it is for --kernels":      "--serving --rows 2",
		"--peer needs --model":     "--peer llama-bench",
		"no such type of weights":  "--kernels --dtype q9",
		"--rows 0: from 1":         "--kernels --rows 0",
		"--rate does not go with":  "--serving --rate 2",
		"exclude each other":       "--url http://a --rate 1 --streams 2",
		`"ttft" is not ttft=2s`:    "--url http://127.0.0.1:1 --slo ttft",
		`isa has no value "mmx"`:   "--isa mmx",
		"no such file or":          "compare a.json b.json",
		"connection refused":       "--url http://127.0.0.1:1",
		`--url "nonsense": write`:  "--url nonsense",
		`--url "http://": write`:   "--url http://",
		`--url "localhost:80": wr`: "--url localhost:80",
		`--url "ftp://a": write`:   "--url ftp://a",
		`write "64MiB/s"`:          "--beside-transfer 64MiB",
		"two comparisons":          "--beside-transfer 1MiB/s --peer a --model a.gguf",
	} {
		got := invoke(t, "", append([]string{"bench"}, strings.Fields(args)...)...)
		if got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
		if usage := strings.Contains(want, "--url \""); usage && got.code != exitUsage {
			t.Errorf("%v ends with %d", args, got.code)
		}
	}
}

// TestBenchIsaAbsent: instructions that a processor lacks are refused with those that it has. Where
// there is AMX, the bench runs on it.
func TestBenchIsaAbsent(t *testing.T) {
	got := invoke(t, "", "bench", "-p", "8", "-n", "0", "--repeat", "1", "--isa", "amx",
		"--numerics", "tdp", "--kv-dtype", "bf16")
	ran := got.code == 0 && strings.Contains(got.err, "numerics tdp · kv bf16")
	refused := got.code == 1 && strings.Contains(got.err, "this machine lacks") &&
		strings.Contains(got.err, "plain")
	if !ran && !refused {
		t.Errorf("%+v", got)
	}
}

// TestBenchLoad loads a server of this machine, with requests that hang up.
func TestBenchLoad(t *testing.T) {
	n := serveNode(t, "")
	got := invoke(t, "", "bench", "--url", n.api, "--streams", "3", "--requests", "12", "--in",
		"40", "--out", "12", "--prefix-share", "0.5", "--cancel", "0.3", "--warmup", "1",
		"--slo", "ttft=1m")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"Serving Benchmark Result", "Cancelled requests:",
		"Failed requests:" + strings.Repeat(" ", 25) + "0", "Median TTFT (ms):", "P99 ITL (ms):"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if !strings.Contains(got.err, "hung up, and the server let go of all of them") {
		t.Error(got.err)
	}
	got = invoke(t, "", "bench", "--url", n.api, "--requests", "2", "--warmup", "0")
	if got.code != 0 || !strings.Contains(got.out, "Total input tokens:"+
		strings.Repeat(" ", 22)+"768") {
		t.Errorf("a context of 512 leaves 384 tokens beside 128: %+v", got)
	}
	n.stop()
}

// TestBenchPeerIsNoProgram: what cannot be run is refused before the model is looked at, which is
// not there.
func TestBenchPeerIsNoProgram(t *testing.T) {
	folder := t.TempDir()
	text := filepath.Join(folder, "llama-bench.txt")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]string{
		filepath.Join(folder, "none"): "there is no such program",
		"no-such-llama-bench":         "there is no such program",
		folder:                        "is a folder; name the program in it",
		text:                          "is no program: it may not be executed",
		os.DevNull:                    "is no file",
	} {
		got := invoke(t, "", "bench", "--model", "none.gguf", "--peer", peer)
		if runtime.GOOS == "windows" && got.code == exitUsage {
			continue // Other names and no such bits there.
		}
		if got.code != exitUsage || !strings.Contains(got.err, "--peer "+peer) ||
			!strings.Contains(got.err, want) {
			t.Errorf("%s: %+v, want %q", peer, got, want)
		}
	}
}

// TestBenchCompareOfDifferentKinds says so in one line alone.
func TestBenchCompareOfDifferentKinds(t *testing.T) {
	folder := t.TempDir()
	var files []string
	for name, r := range map[string]*bench.Result{
		"rates.json": {Kind: "model", Rows: []bench.Row{bench.RowOf("pp16", "tok/s", []float64{1})},
			Settings: map[string]string{"isa": "auto"}},
		"url.json": {Kind: "load", Rows: []bench.Row{bench.RowOf("ttft", "ms", []float64{1})}},
	} {
		file := filepath.Join(folder, name)
		if err := r.Save(file); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	got := invoke(t, "", "bench", "compare", files[0], files[1])
	if got.code != exitFailed || got.out != "" || strings.Count(got.err, "\n") != 1 ||
		!strings.Contains(got.err, "(load)") || !strings.Contains(got.err, "no figure in common") {
		t.Errorf("%+v", got)
	}
}
