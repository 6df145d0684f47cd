package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/admin"
)

// topOptions are the flags of `engine top`.
type topOptions struct {
	admin        adminTarget
	once, asJSON bool
}

func topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [--once [--json]] [--admin ADDR]",
		Short: "Watch a running instance",
		Long: `
Shows what a running instance does, each second: rates, latencies, pages, the requests that run and
wait, and its policy; of a router also its instances. Keys: q quits, p shows the policies, r the
requests, ? what the columns mean. With --once, or when the output is no terminal, it prints one
look and ends.`,
		Example: `  engine top
  engine top --once --json | jq .requests`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.asJSON && !o.once {
				return usageError("--json goes with --once")
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return top(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &o.admin)
	cmd.Flags().BoolVar(&o.once, "once", false, "print one look and end")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "as one JSON document")
	return cmd
}

// look asks an instance for its state.
func look(ctx context.Context, c *adminClient) (admin.State, error) {
	var s admin.State
	err := c.call(ctx, "GET", "/state", nil, &s)
	return s, err
}

// top prints one look, or watches until it is told to end.
func top(ctx context.Context, o topOptions, s streams) error {
	c, err := o.admin.dial()
	if err != nil {
		return err
	}
	if !o.once && isTerminal(s.in) && isTerminal(s.out) {
		return watchTop(ctx, c, s)
	}
	now, err := look(ctx, c)
	if err != nil {
		return err
	}
	if len(now.Instances) > 0 {
		// The rates of a router's instances are what grew between two looks.
		pause := time.NewTimer(time.Second)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if now, err = look(ctx, c); err != nil {
			return err
		}
	}
	if o.asJSON {
		return json.NewEncoder(s.out).Encode(now)
	}
	const plainWidth, plainHeight = 120, 400
	_, err = fmt.Fprintln(s.out, drawTop(&topScreen{state: now, width: plainWidth,
		height: plainHeight, paint: plainly}))
	return err
}
