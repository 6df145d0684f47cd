package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/bench"
)

func benchCompareCommand() *cobra.Command {
	var least float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare BEFORE.json AFTER.json",
		Short: "Compare two results of engine bench",
		Long: `
Prints every figure that both results have, and how much better the second one is: above 1 better,
below 1 worse. With --least, a figure below it fails the command.`,
		Example: `  engine bench compare before.json after.json
  engine bench compare before.json after.json --least 0.97`,
		Args: takes(2, "BEFORE.json", "AFTER.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := bench.Read(args[0])
			if err != nil {
				return err
			}
			after, err := bench.Read(args[1])
			if err != nil {
				return err
			}
			changes := bench.Compare(before, after)
			worst, ok := bench.Worst(changes)
			if !ok {
				return fmt.Errorf("%s (%s) and %s (%s) have no figure in common", args[0],
					before.Kind, args[1], after.Kind)
			}
			for _, text := range bench.Differences(before, after) {
				fmt.Fprintln(cmd.ErrOrStderr(), "! the results differ in", text)
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(changes)
			} else {
				err = bench.WriteChanges(cmd.OutOrStdout(), changes)
			}
			switch {
			case err != nil:
				return err
			case least > 0 && worst.Ratio < least:
				return fmt.Errorf("%s is %.3f of what it was; %v at least was asked for",
					worst.Name, worst.Ratio, least)
			}
			return nil
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().Float64Var(&least, "least", 0,
		"fail when a figure is below this part of its value before")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}
