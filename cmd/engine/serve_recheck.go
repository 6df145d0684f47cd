package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

// checkReloadName is the hidden command that a serving instance runs itself by before a reload:
// modules are checked in a process of their own, as they are compiled in one.
const checkReloadName = "check-reload"

// recheckPatience bounds how long the check of a file may take.
const recheckPatience = time.Minute

func checkReloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    checkReloadName + " FILE",
		Short:  "Check what a reload of a file can bring, which is all but the model",
		Hidden: true,
		Args:   takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := loadConfig(args[0])
			if err != nil {
				return err
			}
			_, problems := checkPolicies(cmd.Context(), cfg)
			problems = append(problems, checkCertificate(cfg)...)
			problems = append(problems, checkFolders(cfg)...)
			if len(problems) == 0 {
				return nil
			}
			slices.SortStableFunc(problems, byLine)
			return badConfig(problems)
		},
	}
}

// recheck returns the text of the problems that `engine config check` finds in what the file
// points to, "" for none. The model is not looked at: a running instance keeps its own, and the
// memory that it holds is not free.
func (i *instance) recheck(ctx context.Context) (problems string, err error) {
	if i.file == "" {
		return "", nil // The defaults are right.
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("check the file: find this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, recheckPatience)
	defer cancel()
	var text bytes.Buffer
	child := exec.CommandContext(ctx, program, checkReloadName, i.file)
	child.Stderr = &text
	err = child.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitConfig {
		return text.String(), nil
	}
	if err != nil {
		return "", fmt.Errorf("check the file: %w: %s", err, bytes.TrimSpace(text.Bytes()))
	}
	return "", nil
}

// outgrown puts back what a running instance has no room for, and marks those changes as ones
// that need a restart: the models' buffers have a row for each token of the budget that they were
// loaded with, and a chunk cannot be aligned to more than the budget.
func (i *instance) outgrown(changes []config.Change, after *config.Config) {
	if i.model == nil || after.Scheduler.TokenBudget <= i.model.model.MaxRows() {
		return
	}
	kept := []string{"scheduler.token_budget"}
	after.Scheduler.TokenBudget = i.cfg.Scheduler.TokenBudget
	if after.Scheduler.ChunkAlign > after.Scheduler.TokenBudget {
		kept = append(kept, "scheduler.chunk_align")
		after.Scheduler.ChunkAlign = i.cfg.Scheduler.ChunkAlign
	}
	for k := range changes {
		if slices.Contains(kept, changes[k].Key) {
			changes[k].Reloadable = false
		}
	}
}
