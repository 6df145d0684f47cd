package main

import "github.com/spf13/cobra"

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, load, list and roll back scheduling policies",
		Long: `
A policy is a WebAssembly module that decides, once a step, which requests run and how many prompt
tokens each may compute. It can make an engine fast or slow, fair or unfair; it can never change a
token. A module that fails is cut off, and the built-in policy decides that very step.`,
		Example: `  engine policy new mine --lang c
  engine policy check mine.wasm
  engine policy load mine.wasm --activate
  engine policy list
  engine policy rollback`,
	}
	cmd.AddCommand(policyNewCommand(), policyBuildCommand(), policyTestCommand(),
		policyCheckCommand(), policyBenchCommand(), policyInspectCommand(), policyWatchCommand(),
		policyReplayCommand())
	cmd.AddCommand(policyCommands()...)
	return cmd
}
