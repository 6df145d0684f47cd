package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins"
)

// compilePolicyName is the hidden command that a serving instance runs itself by, to compile a
// module in a process that is limited and can be killed.
const compilePolicyName = "compile-policy"

func compilePolicyCommand() *cobra.Command {
	return &cobra.Command{
		Use:    compilePolicyName + " CACHE",
		Short:  "Compile a metered policy module from stdin into a cache folder",
		Hidden: true,
		Args:   takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if plugins.CompileMain(args, cmd.InOrStdin(), cmd.ErrOrStderr()) != 0 {
				return reported
			}
			return nil
		},
	}
}

// policyFolders makes modules be compiled in a process of their own and kept in the cache folder,
// and the inputs of faults be saved in the state folder. Their places of traps are found by a
// process, too. Where there is no such folder, nothing is kept.
func policyFolders(cfg *config.Config, o *plugins.Options, log *slog.Logger) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("policies: find this program: %w", err)
	}
	o.Compiler = []string{program, compilePolicyName}
	o.Tracer = []string{program, tracePolicyName}
	if cache, err := cfg.CacheDir(); err != nil {
		log.Warn("no cache of compiled policies: node.cache_dir names one", "error", err)
	} else {
		o.CacheDir = filepath.Join(cache, "policies")
	}
	if state, err := cfg.StateDir(); err != nil {
		log.Warn("the inputs of policy faults are not saved: node.state_dir names a folder",
			"error", err)
	} else {
		o.FaultDir = filepath.Join(state, "faults")
	}
	return nil
}
