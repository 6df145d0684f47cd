package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/router"
	"github.com/kvrelay/engine/plugins"
)

// reloads counts the configurations that were applied, one at a time.
type reloads struct {
	mu         sync.Mutex
	generation int
}

// namedPolicy finds a policy by the names of the running configuration.
func (i *instance) namedPolicy(name string) (plugins.Spec, error) {
	i.reloads.mu.Lock()
	defer i.reloads.mu.Unlock()
	return namedPolicy(i.cfg, name)
}

// reload reads the file again and applies what a running instance can take. A file with a problem
// changes nothing, and neither does a policy that does not load.
func (i *instance) reload(ctx context.Context) (admin.Reloaded, error) {
	i.reloads.mu.Lock()
	defer i.reloads.mu.Unlock()
	after, problems := config.Load(i.file)
	if config.Failed(problems) {
		var text bytes.Buffer
		config.Report(&text, problems)
		return i.refused(text.String()), nil
	}
	if text, err := i.recheck(ctx); err != nil {
		return admin.Reloaded{}, err
	} else if text != "" {
		return i.refused(text), nil
	}
	if err := i.staysClosed(after); err != nil {
		return admin.Reloaded{}, err
	}
	changes := config.Diff(i.cfg, after)
	i.outgrown(changes, after)
	var absent []string
	if i.router != nil {
		absent = i.router.Absent()
	}
	// What does not load must change nothing: the policy goes first.
	if err := i.reloadPolicy(ctx, changes, after); err != nil {
		return admin.Reloaded{}, err
	}
	if err := i.reloadNumbers(ctx, changes, after); err != nil {
		return admin.Reloaded{}, err
	}
	result := admin.Reloaded{}
	for _, c := range changes {
		change := admin.Change{Key: c.Key, Old: c.Old, New: c.New, Note: "needs a restart"}
		if i.takes(c) {
			change.Applied, change.Note = true, "applied"
		}
		result.Changes = append(result.Changes, change)
	}
	result.Changes = append(result.Changes, i.returned(absent)...)
	i.keep(changes, after)
	i.reloads.generation++
	result.Generation = i.reloads.generation
	i.log.Info("reloaded", "changes", len(changes), "generation", result.Generation)
	return result, nil
}

// refused answers a reload of a file with problems.
func (i *instance) refused(problems string) admin.Reloaded {
	i.log.Error("reload refused: the file has problems", "file", i.file)
	return admin.Reloaded{Problems: problems, Generation: i.reloads.generation}
}

// returned lists which of the instances that had left, by role/name, the file brought back.
func (i *instance) returned(absent []string) []admin.Change {
	var changes []admin.Change
	if i.router == nil {
		return nil
	}
	for _, p := range i.router.Instances() {
		if slices.Contains(absent, p.Role.String()+"/"+p.Name) {
			changes = append(changes, admin.Change{Key: "router." + p.Role.String(),
				Old: p.Name + " has left", New: p.Name, Applied: true, Note: "joined again"})
		}
	}
	return changes
}

// takes reports whether this instance applies a change while it runs.
func (i *instance) takes(c config.Change) bool {
	if !c.Reloadable {
		return false
	}
	isRouter := i.cfg.Node.Role == config.RoleRouter
	switch table, _, _ := strings.Cut(c.Key, "."); table {
	case "auth", "limits", "telemetry":
		return true
	case "router":
		return isRouter
	}
	return !isRouter
}

// staysClosed refuses a file that is right by itself but would leave a listener of this instance
// open: a new address needs a restart, and the old one stays until then.
func (i *instance) staysClosed(after *config.Config) error {
	a := after.Auth
	if a.Mode == config.AuthKeys || a.OpenToNetwork || !config.BeyondLoopback(i.cfg.Listen.API) {
		return nil
	}
	return fmt.Errorf("the API listens on %s until a restart, and nobody would be asked for a "+
		"key: keep auth.mode = %q for now, or restart", i.cfg.Listen.API, config.AuthKeys)
}

// reloadDoor applies who may enter, and on a router who answers.
func (i *instance) reloadDoor(changes []config.Change, after *config.Config) error {
	if changed(changes, "auth") || changed(changes, "limits") {
		i.gate.Replace(accessRules(after))
	}
	if i.router == nil { // The same lists bring back who left.
		return nil
	}
	before := i.router.Instances()
	err := i.router.Replace(endpoints(after.Router.Prefill), endpoints(after.Router.Decode))
	if err != nil {
		return err
	}
	stay := i.router.Instances()
	for _, old := range before {
		same := func(p router.Place) bool { return p.Name == old.Name && p.Role == old.Role }
		if !slices.ContainsFunc(stay, same) {
			i.metrics.ForgetInstance(old.Name, old.Role.String())
		}
	}
	return nil
}

// changed reports whether a key, or one below a table, is among the changes.
func changed(changes []config.Change, prefix string) bool {
	return slices.ContainsFunc(changes, func(c config.Change) bool {
		return c.Key == prefix || strings.HasPrefix(c.Key, prefix+".")
	})
}

// reloadPolicy makes room for a longer queue, and loads and activates the policy if the file
// changed anything about it.
func (i *instance) reloadPolicy(ctx context.Context, changes []config.Change,
	after *config.Config) error {
	if i.policies == nil {
		return nil
	}
	if err := i.policies.resize(ctx, after); err != nil {
		return err
	}
	again := changed(changes, "policy.active") || changed(changes, "policy.select") ||
		changed(changes, "policy.chunk") || changed(changes, "policy.limits")
	for _, name := range deciding(after) {
		again = again || changed(changes, "policies."+name)
	}
	if again || longerScore(changes, after) {
		if err := i.policies.follow(ctx, after); err != nil {
			return err
		}
	}
	i.policies.SetRules(policyRules(after)) // What did not load has changed nothing.
	return nil
}

// longerScore reports whether a score decides whose fuel is made for another length of the queue.
func longerScore(changes []config.Change, after *config.Config) bool {
	if !changed(changes, "scheduler.max_queue") && !changed(changes, "scheduler.max_num_seqs") {
		return false
	}
	return slices.ContainsFunc(after.Policies, func(p config.PolicyModule) bool {
		return p.Score != "" && slices.Contains(deciding(after), p.Name)
	})
}

// reloadNumbers applies what the engine and the transfer take between two steps.
func (i *instance) reloadNumbers(ctx context.Context, changes []config.Change,
	after *config.Config) error {
	if i.engine != nil && changed(changes, "scheduler") {
		if err := i.engine.engine.SetLimits(ctx, limits(after)); err != nil {
			return fmt.Errorf("apply [scheduler]: %w", err)
		}
	}
	if i.engine != nil && (changed(changes, "tenants") || changed(changes, "class")) {
		if err := i.engine.engine.SetShares(ctx, shares(after)); err != nil {
			return fmt.Errorf("apply [tenants] and [class]: %w", err)
		}
	}
	if i.engine != nil && i.engine.sender != nil {
		i.engine.sender.SetRate(int64(after.Transfer.MaxRate))
		if err := i.engine.sender.SetPeers(after.Transfer.Peers); err != nil {
			return fmt.Errorf("apply transfer.peers: %w", err)
		}
	}
	i.level.Set(logLevel(after))
	return i.reloadDoor(changes, after)
}

// keep makes the new configuration the running one, except for what needs a restart: that is told
// again at the next reload.
func (i *instance) keep(changes []config.Change, after *config.Config) {
	if slices.ContainsFunc(changes, func(c config.Change) bool { return !i.takes(c) }) {
		running := *i.cfg
		running.Policy, running.Policies = after.Policy, after.Policies
		running.Policy.Seed = i.cfg.Policy.Seed
		running.Scheduler, running.Tenants = after.Scheduler, after.Tenants
		running.Scheduler.QueueTimeout = i.cfg.Scheduler.QueueTimeout
		running.Scheduler.Stall = i.cfg.Scheduler.Stall
		running.Class = after.Class
		running.Transfer.Peers = after.Transfer.Peers
		running.Transfer.MaxRate = after.Transfer.MaxRate
		running.Telemetry.LogLevel = after.Telemetry.LogLevel
		running.Auth, running.Keys, running.Limits = after.Auth, after.Keys, after.Limits
		running.Router.Prefill, running.Router.Decode = after.Router.Prefill, after.Router.Decode
		after = &running
	}
	i.cfg = after
}

// logReload says in the log what a reload did that nobody waits for.
func (i *instance) logReload(r admin.Reloaded, err error) {
	if err != nil {
		i.log.Error("reload failed; the running configuration stays", "error", err)
		return
	}
	if r.Problems != "" {
		i.log.Error("reload refused; the running configuration stays", "problems", r.Problems)
	}
	for _, c := range r.Changes {
		i.log.Info("reload", "key", c.Key, "old", c.Old, "new", c.New, "result", c.Note)
	}
}
