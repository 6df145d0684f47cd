package main

import (
	"fmt"
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
// process, too.
func policyFolders(cfg *config.Config, o *plugins.Options) error {
	cache, err := cfg.CacheDir()
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("policies: find this program: %w", err)
	}
	o.CacheDir = filepath.Join(cache, "policies")
	o.Compiler = []string{program, compilePolicyName}
	state, err := cfg.StateDir()
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	o.FaultDir = filepath.Join(state, "faults")
	o.Tracer = []string{program, tracePolicyName}
	return nil
}
