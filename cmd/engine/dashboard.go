package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/metrics"
)

// metricsCommand holds what goes with /metrics.
func metricsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "What goes with /metrics",
		Long: `
Every instance exports its metrics at /metrics of its API and internal listeners, in the formats
that Prometheus reads.`,
		Example: `  engine metrics dashboard > engine-grafana.json`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "dashboard",
		Short: "A dashboard for Grafana, as JSON",
		Long: `
Prints a Grafana dashboard that draws every series of /metrics: import it in Grafana, or put it into
the folder that provisioning reads. A running instance serves the same at /dashboard of its admin
listener.`,
		Example: `  engine metrics dashboard > engine-grafana.json`,
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(metrics.Dashboard())
			return err
		},
		Annotations: map[string]string{exits: "1 2"},
	})
	return cmd
}
