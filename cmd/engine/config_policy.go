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
	if problem := checkTogether(ctx, cfg); problem != nil {
		bad = append(bad, *problem)
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

// checkTogether sees whether two modules can share the work, as the file asks; each by itself is
// checked elsewhere.
func checkTogether(ctx context.Context, cfg *config.Config) *config.Problem {
	names := deciding(cfg)
	if len(names) < 2 {
		return nil
	}
	slots, decisions := tableSize(cfg)
	host, err := plugins.New(plugins.Options{Slots: slots, Decisions: decisions})
	if err != nil {
		return nil // The numbers are wrong, which is said elsewhere.
	}
	defer host.Close()
	for _, name := range names {
		spec, err := namedPolicy(cfg, name)
		if err != nil {
			return nil
		}
		if _, err := host.Load(ctx, spec); err != nil {
			return nil
		}
	}
	if _, err = host.Compose(names[0], names[1]); err == nil {
		return nil
	}
	problem := cfg.At("policy.chunk")
	problem.Code, problem.Label = "E406", strings.TrimPrefix(err.Error(), "plugins: ")
	problem.Message = fmt.Sprintf("policies %q and %q cannot share the work", names[0], names[1])
	return &problem
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
