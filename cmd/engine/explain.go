package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/admin"
)

func explainCommand() *cobra.Command {
	var address adminTarget
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain REQUEST",
		Short: "Why a request waited, and what became of it",
		Long: `
Tells what happened to a request on one instance: how long it waited and for what, whom the policy
chose instead and for which of its own reasons, where pages or tokens were short, when it was
preempted, computed and sent. REQUEST is the id in the answer's X-Request-Id and in the log, or the
"user" of the request; behind a router it is the id, because the router's calls put theirs in place
of the user. An instance remembers the last 512 requests that ended.`,
		Example: `  engine explain req_8f2c41aa90b1
  engine explain req_8f2c41aa90b1 --json --admin unix:/run/user/1000/engine/p0.sock`,
		Args: takes(1, "REQUEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return explain(cmd.Context(), address, args[0], asJSON, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// explain asks an instance about a request and prints what it says.
func explain(ctx context.Context, address adminTarget, id string, asJSON bool, s streams) error {
	c, err := address.dial()
	if err != nil {
		return err
	}
	var x admin.Explained
	if err := c.call(ctx, "POST", "/explain", admin.Explain{ID: id}, &x); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(s.out).Encode(x)
	}
	for n, r := range x.Requests {
		if n > 0 {
			fmt.Fprintln(s.out)
		}
		printExplanation(s.out, x.Node, &r)
	}
	return nil
}

// printExplanation prints one request: a summary, a line a happening, and what its time went to.
func printExplanation(w io.Writer, node string, x *admin.Explanation) {
	total := "total"
	if x.State != "" {
		total = "so far"
	}
	fmt.Fprintf(w, "%s  on %s  %s  in %d (cached %d)  out %d  %s %.3f s  tenant %s", x.ID, node,
		x.Kind, x.Prompt, x.Cached, x.Output, total, x.Total, x.Tenant)
	if x.Policy != "" {
		fmt.Fprintf(w, "  policy %s", x.Policy)
	}
	fmt.Fprintln(w)
	for n := range x.Lines {
		l := &x.Lines[n]
		text := fmt.Sprintf("%8.3f  %-13s %s", l.From, l.What, strings.TrimSpace(details(l)))
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	if x.Lost > 0 {
		fmt.Fprintf(w, "          (%d lines of the middle are not kept)\n", x.Lost)
	}
	if x.FirstToken > 0 {
		fmt.Fprintf(w, "  TTFT %.3f s = queue %.3f + prefill %.3f", x.FirstToken, x.Queue,
			x.Prefill)
		if rest := x.FirstToken - x.Queue - x.Prefill; rest >= 0.0005 {
			fmt.Fprintf(w, " + other %.3f", rest)
		}
		if x.Output > 1 {
			fmt.Fprintf(w, "   TPOT %.1f ms", 1000*x.Decode/float64(x.Output-1))
		}
		fmt.Fprintln(w)
	}
	if x.BytesSent > 0 {
		fmt.Fprintf(w, "  kv %s in %.3f s\n", size(int(x.BytesSent)), x.Transfer)
	}
	switch {
	case x.Error != "":
		fmt.Fprintf(w, "  ended (%s): %s\n", x.Reason, x.Error)
	case x.State == "":
		fmt.Fprintf(w, "  ended (%s)\n", x.Reason)
	default:
		fmt.Fprintf(w, "  it is %s now\n", x.State)
	}
}
