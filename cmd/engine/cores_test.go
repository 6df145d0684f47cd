package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvrelay/engine/host/config"
)

// TestCores: threads by affinity and by the quotas of the control groups, as files show them.
func TestCores(t *testing.T) {
	const self = "proc/self/cgroup"
	const v2, v1 = "0::/a/b\n", "3:cpuset:/x\n4:cpu,cpuacct:/a\n0::/\n"
	for name, c := range map[string]struct {
		files   map[string]string
		allowed int
		want    int
	}{
		"no control groups": {nil, 8, 8},
		"no bound":          {map[string]string{self: v2, "a/b/cpu.max": "max 100000"}, 8, 8},
		"two and a half":    {map[string]string{self: v2, "a/b/cpu.max": "250000 100000"}, 8, 2},
		"a group above": {map[string]string{self: v2, "a/b/cpu.max": "max 100000",
			"a/cpu.max": "300000 100000"}, 8, 3},
		"the mount is the group": {map[string]string{self: "0::/../host/name\n",
			"cpu.max": "400000 100000"}, 8, 4},
		"half of one":  {map[string]string{self: v2, "cpu.max": "50000 100000"}, 8, 1},
		"affinity":     {map[string]string{self: v2, "cpu.max": "900000 100000"}, 3, 3},
		"nonsense":     {map[string]string{self: "a\nb:c\n0::/\n", "cpu.max": "x y"}, 5, 5},
		"period of 0":  {map[string]string{self: v2, "cpu.max": "900000 0"}, 5, 5},
		"version 1":    {v1Files(v1, "cpu,cpuacct/a", "600000", "100000"), 8, 6},
		"its own name": {v1Files(v1, "cpu/a", "200000", "50000"), 8, 4},
		"unbound":      {v1Files(v1, "cpu,cpuacct/a", "-1", "100000"), 8, 8},
		"in a container": {v1Files("4:cpuacct,cpu:/docker/0123\n", "cpu", "150000",
			"100000"), 8, 1},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			if file != self {
				file = filepath.Join("sys/fs/cgroup", file)
			}
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := coresIn(root, c.allowed); got != c.want {
			t.Errorf("%s: %d threads, want %d", name, got, c.want)
		}
	}
	if got := cores(); got < 1 || threads(&config.Config{}) != got {
		t.Errorf("this machine: %d threads", got)
	}
}

func v1Files(groups, folder, quota, period string) map[string]string {
	return map[string]string{"proc/self/cgroup": groups,
		folder + "/cpu.cfs_quota_us": quota, folder + "/cpu.cfs_period_us": period}
}
