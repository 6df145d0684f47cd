package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/admin"
)

func drainCommand() *cobra.Command {
	var address adminTarget
	var undo, now bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Let an instance finish what it has and take nothing new",
		Long: `
The instance answers new requests with 503 and finishes those it has; /ready turns 503, so that
balancers and routers look elsewhere. The command waits until it is through; the instance keeps
running and can be stopped then. SIGTERM does the same and stops it.`,
		Example: `
  engine drain                       and wait until nothing is left
  engine drain --no-wait
  engine drain --undo                take requests again`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return drain(cmd.Context(), address, !undo, !now && !undo, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	cmd.Flags().BoolVar(&undo, "undo", false, "take requests again")
	cmd.Flags().BoolVar(&now, "no-wait", false, "do not wait for what is under way")
	return cmd
}

// drain tells an instance to drain and, if asked, waits until it is through.
func drain(ctx context.Context, address adminTarget, on, wait bool, s streams) error {
	const every = 200 * time.Millisecond
	c, err := address.dial()
	if err != nil {
		return err
	}
	begun := time.Now()
	var d admin.Drained
	if err := c.call(ctx, "POST", "/drain", admin.Drain{Draining: &on}, &d); err != nil {
		return err
	}
	if !on {
		fmt.Fprintln(s.out, "takes requests again")
		return nil
	}
	fmt.Fprintf(s.out, "draining: %d under way\n", d.UnderWay)
	for wait && d.UnderWay > 0 {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.call(ctx, "POST", "/drain", admin.Drain{}, &d); err != nil {
			return err
		}
	}
	if wait {
		fmt.Fprintf(s.out, "drained in %.1f s\n", time.Since(begun).Seconds())
	}
	return nil
}
