package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/gpu/cuda"
)

// release is the version of this source tree.
const release = "0.1.0"

// build is what `engine version --json` prints.
type build struct {
	Version     string   `json:"version"`
	Commit      string   `json:"commit"` // "unknown" without version control, as under `go run`
	Modified    bool     `json:"modified"`
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	Backends    []string `json:"backends"`
	CPUFeatures []string `json:"cpu_features"`
	PolicyABI   string   `json:"policy_abi"`
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Version, commit, Go, backends, CPU features, policy ABI",
		Args:  takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildInfo()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			}
			commit := b.Commit
			if b.Modified {
				commit += " with changes"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "engine %s (%s)\n"+
				"  go           %s %s\n  backends     %s\n  cpu          %s\n  policy abi   %s\n",
				b.Version, commit, b.Go, b.Platform, strings.Join(b.Backends, ", "),
				strings.Join(b.CPUFeatures, " "), b.PolicyABI)
			return err
		},
		Annotations: map[string]string{exits: "2"},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// buildInfo asks the binary itself.
func buildInfo() build {
	b := build{
		Version: release, Commit: "unknown", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Backends: backends(),
		CPUFeatures: cpuFeatures(), PolicyABI: fmt.Sprintf("%d.%d", abi.Major, abi.Minor),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// backends are the kinds of devices that this binary can open; whether a driver is there is another
// question, which opening one answers.
func backends() []string {
	if cuda.Built() {
		return []string{"cpu", "cuda"}
	}
	return []string{"cpu"}
}

// cpuFeatures are those that kernels here use or could.
func cpuFeatures() []string {
	features := []string{}
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2}, {"fma", cpu.X86.HasFMA},
		{"avxvnni", cpu.X86.HasAVXVNNI}, {"avx512f", cpu.X86.HasAVX512F},
		{"avx512vnni", cpu.X86.HasAVX512VNNI}, {"avx512bf16", cpu.X86.HasAVX512BF16},
		{"amx-tile", cpu.X86.HasAMXTile}, {"asimd", cpu.ARM64.HasASIMD},
		{"asimddp", cpu.ARM64.HasASIMDDP}, {"sve", cpu.ARM64.HasSVE},
	} {
		if f.has {
			features = append(features, f.name)
		}
	}
	return features
}
