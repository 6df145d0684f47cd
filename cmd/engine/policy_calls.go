package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/plugins"
)

// policyLoad gives a module to an instance.
func policyLoad(ctx context.Context, o loadOptions, s streams) error {
	if o.config != "" && !json.Valid([]byte(o.config)) {
		return usageError("--config is not JSON: %s", o.config)
	}
	ask := admin.LoadPolicy{Name: o.source, Activate: o.activate, Config: json.RawMessage(o.config)}
	if strings.HasSuffix(o.source, ".wasm") {
		wasm, err := readModule(o.source)
		if err != nil {
			return err
		}
		if len(wasm) == 0 {
			return fmt.Errorf("%s is empty: it is no module", o.source)
		}
		ask.Wasm = wasm
		ask.Name = strings.TrimSuffix(filepath.Base(o.source), ".wasm")
	}
	c, err := dialAdmin(o.admin)
	if err != nil {
		return err
	}
	var loaded admin.Loaded
	if err := c.call(ctx, "POST", "/policies/load", ask, &loaded); err != nil {
		return err
	}
	if loaded.Swap == nil {
		fmt.Fprintf(s.out,
			"%s loaded, checked and tried   next: engine policy load %s --activate\n",
			shownPolicy(loaded.Status), o.source)
		return nil
	}
	sayActive(s, *loaded.Swap)
	undo := "undo: engine policy rollback"
	if o.admin != "" {
		undo += " --admin " + o.admin
	}
	fmt.Fprintln(s.out, undo)
	return nil
}

func shownPolicy(s plugins.Status) string {
	if s.Version == "" || strings.HasPrefix(s.Name, "builtin:") {
		return s.Name
	}
	return s.Name + "@" + s.Version
}

func sayActive(s streams, swap plugins.Swap) {
	name := swap.To
	if strings.HasPrefix(name, "builtin:") {
		name = policyOf(name)
	}
	fmt.Fprintf(s.out, "%s active since step %d (pause %s, 0 requests dropped, queue kept)\n", name,
		swap.Step, swap.Pause)
}

// policyList prints the modules of an instance.
func policyList(ctx context.Context, address string, asJSON bool, s streams) error {
	c, err := dialAdmin(address)
	if err != nil {
		return err
	}
	var list []plugins.Status
	if err := c.call(ctx, "GET", "/policies", nil, &list); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(s.out).Encode(list)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVER\tSTATE\tSINCE\tDIGEST\tCALLS\tFAULTS\tP99\tMEMORY")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", p.Name, p.Version, p.State,
			time.Since(p.Since).Round(time.Second), p.Digest[:min(7,
				len(p.Digest))], p.Calls, p.Faults,
			p.P99, size(int(p.Memory)))
	}
	fmt.Fprintln(w, "native:fcfs\t\tfallback\t\t\t\t\t\t")
	return w.Flush()
}

// policyRollback makes the policy before, or a named one, active.
func policyRollback(ctx context.Context, address, to string, s streams) error {
	c, err := dialAdmin(address)
	if err != nil {
		return err
	}
	var swap plugins.Swap
	if err := c.call(ctx, "POST", "/policies/rollback", admin.Rollback{To: to}, &swap); err != nil {
		return err
	}
	sayActive(s, swap)
	return nil
}
