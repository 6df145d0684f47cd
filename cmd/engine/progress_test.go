package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model"
)

// quietLoading shows loading to nobody.
func quietLoading() *loading {
	return newLoading(context.Background(), io.Discard, slog.New(slog.DiscardHandler))
}

// TestLoadingTellsTheTenths: what lasts is told once a tenth, what is quick not at all.
func TestLoadingTellsTheTenths(t *testing.T) {
	var out, log bytes.Buffer
	l := newLoading(t.Context(), &out, slog.New(slog.NewTextHandler(&log, nil)))
	took := time.Duration(0)
	l.took = func() time.Duration { return took }
	const total = 4000
	for done := int64(0); done <= total; done += 10 {
		if done == total/4 {
			took = loadPatience
		}
		if err := l.progress(done, total); err != nil {
			t.Fatal(err)
		}
	}
	l.end()
	var want []string
	for percent := 20; percent <= 100; percent += 10 {
		want = append(want, fmt.Sprintf(`msg="loading weights" percent=%d of="3.9 KiB"`, percent))
	}
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i := range got {
		_, got[i], _ = strings.Cut(got[i], "level=INFO ")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || out.Len() > 0 {
		t.Errorf("log %q, want %q; out %q", got, want, out.String())
	}
}

// TestLoadingRefusesWhatDoesNotFit names both numbers.
func TestLoadingRefusesWhatDoesNotFit(t *testing.T) {
	free, known := freeMemory()
	if !known {
		t.Skip("this system does not tell its free memory")
	}
	l := quietLoading()
	if err := l.admit(model.Need{Weights: 1 << 20, Scratch: 1 << 10}); err != nil {
		t.Error(err)
	}
	err := l.admit(model.Need{Weights: free, Scratch: 64 << 30})
	if err == nil || !strings.Contains(err.Error(), "of weights, 64.0 GiB for the activations") ||
		!strings.Contains(err.Error(), " are free") {
		t.Error(err)
	}
}

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal:  100 kB\nMemAvailable:    3000000 kB\n"
	const stat = "anon 5\ninactive_file 2048\nactive_file 1024\nslab 7\n"
	for _, c := range []struct {
		meminfo, most, used, stat string
		free                      int64
		known                     bool
	}{
		{"", "", "", "", fallbackMemory, false},
		{meminfo, "", "", "", 3000000 << 10, true},
		{meminfo, "max\n", "4096\n", stat, 3000000 << 10, true},
		{meminfo, "1000000\n", "400000\n", "", 600000, true},
		{meminfo, "1000000\n", "400000\n", stat, 600000 + 3072, true},
		{meminfo, "1000000\n", "2000\n", stat, 1000000, true},
		{meminfo, "1000000\n", "2000000\n", stat, 0, true},
		{"", "1000000\n", "0\n", "", 1000000, true},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{"proc/meminfo": c.meminfo,
			"sys/fs/cgroup/memory.max": c.most, "sys/fs/cgroup/memory.current": c.used,
			"sys/fs/cgroup/memory.stat": c.stat} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if free, known := freeMemoryIn(root); free != c.free || known != c.known {
			t.Errorf("%+v: %d bytes, known %v", c, free, known)
		}
	}
}

// TestModelOptions: model.dtype and the other settings reach the model.
func TestModelOptions(t *testing.T) {
	cfg := config.Default()
	if o := modelOptions(cfg); o.DType != nil || o.Sinks != 0 ||
		o.MaxRows != cfg.Scheduler.TokenBudget {
		t.Errorf("%+v", o)
	}
	for _, name := range []string{"f32", "f16", "bf16"} {
		cfg.Model.DType, cfg.Model.AttentionSinks = name, 3
		if o := modelOptions(cfg); o.DType == nil || o.DType.String() != name || o.Sinks != 3 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	m, err := loadModel(cfg, quietLoading())
	if m != nil || err == nil || !strings.Contains(err.Error(), "without a sliding window") {
		t.Errorf("sinks for the embedded model: %v", err)
	}
	cfg.Model.AttentionSinks, cfg.KVCache.DType = 0, "q8_0"
	if o := modelOptions(cfg); o.KV != gpu.Q8_0 {
		t.Errorf("keys and values in q8_0: %+v", o)
	}
	m, err = loadModel(cfg, quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	defer m.close(t.Context(), slog.New(slog.DiscardHandler))
	if m.need != m.model.Config().Need(modelOptions(cfg)) {
		t.Errorf("it took %+v", m.need)
	}
}
