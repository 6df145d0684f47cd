package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins"
)

// checkPolicies checks the active policy and every module that the file names.
func checkPolicies(ctx context.Context, cfg *config.Config) (lines []string, bad []config.Problem) {
	for _, name := range deciding(cfg) {
		if strings.HasPrefix(name, "builtin:") {
			lines = append(lines, name+" · shipped with this binary")
		}
	}
	for _, p := range cfg.Policies {
		line, problem := checkPolicy(ctx, cfg, p)
		if problem != nil {
			bad = append(bad, *problem)
		} else {
			lines = append(lines, line)
		}
	}
	return lines, bad
}

// checkPolicy checks one module: there, its pin, and what `engine policy check` says.
func checkPolicy(ctx context.Context, cfg *config.Config, p config.PolicyModule) (
	string, *config.Problem,
) {
	if p.Score != "" {
		return checkScore(ctx, cfg, p)
	}
	wrong := cfg.At("policies." + p.Name + ".path")
	wasm, err := readModule(p.Path)
	if err != nil {
		wrong.Code, wrong.Label = "E401", err.Error()
		wrong.Message = fmt.Sprintf("policy %q cannot be read", p.Name)
		return "", &wrong
	}
	if digest := digestOf(wasm); p.SHA256 != "" && p.SHA256 != digest {
		wrong = cfg.At("policies." + p.Name + ".sha256")
		wrong.Code, wrong.Label = "E402", "the file has "+digest
		wrong.Message = fmt.Sprintf("policy %q is not the module that is pinned", p.Name)
		return "", &wrong
	}
	if bad, err := wrongSettings(p.Path, p.Config); err != nil || bad != nil {
		return "", settingsProblem(cfg, p, bad, err)
	}
	limits := policyLimits(cfg)
	report := plugins.Check(ctx, wasm, p.Config, limits)
	if !report.OK() {
		first := report.Problems[0]
		wrong.Code, wrong.Label = "E403", first.Code+": "+first.Text
		wrong.Message = fmt.Sprintf("policy %q is refused", p.Name)
		wrong.Help = append(first.Help, "all of it: engine policy check "+p.Path)
		return "", &wrong
	}
	return fmt.Sprintf("%s · %s · sha256 %s…", p.Name, size(len(wasm)), digestOf(wasm)[:7]), nil
}

// policyLimits are the limits that the file sets for a module.
func policyLimits(cfg *config.Config) plugins.Limits {
	limits := plugins.DefaultLimits()
	limits.MemoryPages = int(cfg.Policy.Limits.Memory >> 16)
	limits.InitFuel = cfg.Policy.Limits.InitFuel
	limits.Fuel = cfg.Policy.Limits.Fuel.Or(0)
	limits.LogLines = cfg.Policy.Limits.LogLines
	if limits.LogLines == 0 {
		limits.LogLines = -1 // None, where 0 would be the default.
	}
	return limits
}

func digestOf(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}
