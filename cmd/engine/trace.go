package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func traceCommand() *cobra.Command {
	var addresses []string
	var target adminTarget
	var out string
	cmd := &cobra.Command{
		Use:   "trace [-o FILE] [--admin ADDR]...",
		Short: "Write the latest events as a timeline",
		Long: `
Writes what an instance did lately, in the format that https://ui.perfetto.dev and chrome://tracing
open: a thread for each request, with its queue, prefill chunks, transfer and decode. With several
--admin the instances share one timeline, so that a request is seen on its way through a router, a
prefill and a decode instance. An instance keeps its latest telemetry.trace_events events.`,
		Example: `
  engine trace -o trace.json
  engine trace -o trace.json --admin unix:r0.sock --admin unix:p0.sock --admin unix:d0.sock`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return writeTrace(cmd.Context(), target.each(addresses), out, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	cmd.Flags().StringArrayVar(&addresses, "admin", nil,
		"`ADDR` of an instance: host:port or unix:PATH; may be repeated")
	timeoutFlag(cmd, &target)
	cmd.Flags().StringVarP(&out, "out", "o", "", "`FILE` to write; default: stdout")
	return cmd
}

// timeline is a document in the Trace Event Format.
type timeline struct {
	Unit   string           `json:"displayTimeUnit"`
	Events []map[string]any `json:"traceEvents"`
}

// writeTrace puts the timelines of several instances into one, each a process of its own.
func writeTrace(ctx context.Context, targets []adminTarget, out string, s streams) error {
	all := timeline{Unit: "ms", Events: []map[string]any{}}
	for n, address := range targets {
		c, err := address.dial()
		if err != nil {
			return err
		}
		var one timeline
		if err := c.call(ctx, "GET", "/trace", nil, &one); err != nil {
			return err
		}
		for _, e := range one.Events {
			e["pid"] = n + 1
			all.Events = append(all.Events, e)
		}
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(all); err != nil {
		return err
	}
	if out == "" {
		_, err := io.Copy(s.out, &text)
		return err
	}
	if err := os.WriteFile(out, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the timeline: %w", err)
	}
	fmt.Fprintf(s.out, "%s: %s of %s · open it at https://ui.perfetto.dev\n", out,
		plural(len(all.Events), "event"), plural(len(targets), "instance"))
	return nil
}
