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
	ask := admin.LoadPolicy{Name: o.source, Activate: o.activate, Part: plugins.Part(o.part),
		Config: json.RawMessage(o.config)}
	if strings.HasSuffix(o.source, ".wasm") {
		wasm, err := readModule(o.source)
		if err != nil {
			return err
		}
		if len(wasm) == 0 {
			return fmt.Errorf("%s is empty: it is no module", o.source)
		}
		ask.Wasm, ask.Reasons = wasm, reasonsFor(o.source)
		ask.Name = strings.TrimSuffix(filepath.Base(o.source), ".wasm")
	}
	if err := settingsError(o.source, []byte(o.config)); err != nil {
		return fmt.Errorf("%s: %w", o.source, err)
	}
	c, err := o.admin.dial()
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
	if o.admin.address != "" {
		undo += " --admin " + o.admin.address
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
	kept := "queue kept"
	if strings.HasPrefix(swap.State, "handed over") {
		kept = "queue kept, state " + swap.State
	}
	fmt.Fprintf(s.out, "%s active since step %d (pause %s, %s)\n",
		shownArrangement(swap.To), swap.Step+1, swap.Pause, kept)
}

// policyList prints the modules of an instance, and what decided when.
func policyList(ctx context.Context, address adminTarget, asJSON bool, s streams) error {
	c, err := address.dial()
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
	var history admin.History
	if err := c.call(ctx, "GET", "/policies/history", nil, &history); err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVER\tSTATE\tSINCE\tDIGEST\tCALLS\tFAULTS\tP99\tFUEL P99\tMEMORY")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", p.Name, p.Version,
			shownState(p), time.Since(p.Since).Round(time.Second),
			p.Digest[:min(7, len(p.Digest))], p.Calls, p.Faults, p.P99,
			share(p.Fuel99, p.FuelLimit),
			size(int(p.Memory)))
	}
	fmt.Fprintln(w, "native:fcfs\t\tfallback\t\t\t\t\t\t\t")
	if err := w.Flush(); err != nil {
		return err
	}
	return printHistory(s, history.Entries)
}

// shownState is where a module stands, and how far it is trusted where that is not quite.
func shownState(p plugins.Status) string {
	switch p.Breaker {
	case plugins.Open:
		return string(p.State) + ", set aside"
	case plugins.HalfOpen:
		return string(p.State) + ", on probation"
	}
	return string(p.State)
}

// share is a part of a whole for people.
func share(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2g %%", 100*float64(part)/float64(whole))
}

// printHistory tells what can be gone back to.
func printHistory(s streams, entries []plugins.Past) error {
	if len(entries) < 2 {
		return nil
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSWAP\tDECIDED\tFROM STEP\tAGO")
	for _, p := range entries {
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\n", p.Number, shownArrangement(p.Policy), p.Step+1,
			time.Since(p.Since).Round(time.Second))
	}
	fmt.Fprintln(w, "go back: engine policy rollback --to SWAP")
	return w.Flush()
}

// policyRollback makes what decided before decide again.
func policyRollback(ctx context.Context, address adminTarget, ask admin.Rollback, s streams) error {
	c, err := address.dial()
	if err != nil {
		return err
	}
	var swap plugins.Swap
	if err := c.call(ctx, "POST", "/policies/rollback", ask, &swap); err != nil {
		return err
	}
	sayActive(s, swap)
	return nil
}

// policyUnload forgets the modules of a name.
func policyUnload(ctx context.Context, address adminTarget, name string, s streams) error {
	c, err := address.dial()
	if err != nil {
		return err
	}
	var done admin.Unloaded
	if err := c.call(ctx, "POST", "/policies/unload", admin.Unload{Name: name}, &done); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s unloaded\n", done.Name)
	return err
}
