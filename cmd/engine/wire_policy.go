package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/builtin"
)

// policies is the host of the policy modules as the scheduler and the admin routes see it.
type policies struct {
	*plugins.Host
	observer *observer
}

// openPolicies starts a host and makes the configured policy active.
func openPolicies(
	ctx context.Context, cfg *config.Config, o plugins.Options, w *observer,
) (*policies, error) {
	o.Log, o.Observer, o.Rules = w.log, w, policyRules(cfg)
	o.Slots, o.Decisions = tableSize(cfg)
	host, err := plugins.New(o)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	p := &policies{host, w}
	if err := p.follow(ctx, cfg); err != nil {
		return nil, err
	}
	return p, nil
}

// policyRules is what happens when a policy fails.
func policyRules(cfg *config.Config) plugins.Rules {
	p, b := &cfg.Policy, &cfg.Policy.Breaker
	return plugins.Rules{
		OnFault: plugins.OnFault(p.OnFault), Keep: p.Keep, Slow: p.Limits.Slow,
		Faults: b.Faults, Window: b.Window, Backoff: b.Backoff, BackoffMax: b.BackoffMax,
		CleanSteps: b.CleanSteps,
	}
}

// deciding are the names of the policies that a configuration lets decide: one, or one that selects
// and one that sets chunk lengths.
func deciding(cfg *config.Config) []string {
	if cfg.Policy.Select != "" {
		return []string{cfg.Policy.Select, cfg.Policy.Chunk}
	}
	return []string{cfg.Policy.Active}
}

// tableSize is how many requests a module is shown at most, and how many decisions it may give.
func tableSize(cfg *config.Config) (slots, decisions int) {
	c := cfg.Scheduler
	return c.MaxQueue + c.MaxNumSeqs, c.MaxNumSeqs + c.MaxPreempt
}

// resize makes room in the active module's table for what a configuration allows.
func (p *policies) resize(ctx context.Context, cfg *config.Config) error {
	slots, decisions := tableSize(cfg)
	if err := p.Resize(ctx, slots, decisions); err != nil {
		return fmt.Errorf("load the active policy for a longer queue: %w", err)
	}
	return nil
}

// follow loads the policies that a configuration names and lets them decide.
func (p *policies) follow(ctx context.Context, cfg *config.Config) error {
	names := deciding(cfg)
	for _, name := range names {
		spec, err := namedPolicy(cfg, name)
		if err != nil {
			return err
		}
		if _, err := p.Load(ctx, spec); err != nil {
			return fmt.Errorf("load policy %s: %w", name, err)
		}
	}
	var err error
	if len(names) > 1 {
		_, err = p.Compose(names[0], names[1])
	} else {
		_, err = p.Host.Activate(names[0])
	}
	if err != nil {
		return fmt.Errorf("activate policy %s: %w", strings.Join(names, " with "), err)
	}
	return nil
}

// namedPolicy finds builtin:NAME or a [policies.NAME].
func namedPolicy(cfg *config.Config, name string) (plugins.Spec, error) {
	spec := plugins.Spec{Name: name, Limits: policyLimits(cfg)}
	if short, ok := strings.CutPrefix(name, "builtin:"); ok {
		wasm, found := builtin.Module(short)
		if !found {
			return spec, fmt.Errorf("there is no policy %s; built in: %s", name,
				config.BuiltinNames())
		}
		spec.Wasm, spec.Reasons = wasm, reasonsFor(name)
		return spec, nil
	}
	for _, module := range cfg.Policies {
		if module.Name != name {
			continue
		}
		if module.Score != "" {
			return scorePolicy(cfg, module, spec)
		}
		wasm, err := readModule(module.Path)
		if err != nil {
			return spec, fmt.Errorf("policy %s: %w", name, err)
		}
		if digest := digestOf(wasm); module.SHA256 != "" && module.SHA256 != digest {
			return spec, fmt.Errorf("policy %s: %s has sha256 %s, but %s is pinned", name,
				module.Path,
				digest, module.SHA256)
		}
		if err := settingsError(module.Path, module.Config); err != nil {
			return spec, fmt.Errorf("policy %s: %w", name, err)
		}
		spec.Wasm, spec.Config = wasm, module.Config
		spec.Reasons = reasonsFor(module.Path)
		return spec, nil
	}
	return spec, fmt.Errorf("there is no policy %q: no [policies.%s] table; built in: %s", name,
		name,
		config.BuiltinNames())
}

// The judge's word reaches the sandbox: the host hears it itself.
var _ scheduler.FaultReporter = (*policies)(nil)
