package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "tg2 x3") {
		t.Error("the page:", err)
	}
	got = invoke(t, "", "bench", "compare", result, result, "--least", "0.99")
	if got.code != 0 || !strings.Contains(got.out, "pp16") {
		t.Errorf("%+v", got)
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

func TestBenchRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing to measure":        {"-p", "0", "-n", "0"},
		"takes 4096 positions":      {"-p", "4096"},
		"--repeat 0":                {"--repeat", "0"},
		"int8 or f32":               {"--activations", "int4"},
		"--peer needs --model":      {"--peer", "llama-bench"},
		"exclude each other":        {"--url", "http://a", "--rate", "1", "--streams", "2"},
		`"ttft" is not ttft=2s`:     {"--url", "http://127.0.0.1:1", "--slo", "ttft"},
		"unknown instruction set":   {"--isa", "mmx"},
		"no such file or directory": {"compare", "a.json", "b.json"},
		"connection refused":        {"--url", "http://127.0.0.1:1"},
	} {
		got := invoke(t, "", append([]string{"bench"}, args...)...)
		if got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
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
