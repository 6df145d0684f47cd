package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/admin"
)

func instancesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "instances",
		Short: "See and change which instances stand behind a router",
		Long: `
A router's file lists its instances. These commands change the list while it runs: who joins is
placed on once it has answered that it serves that role and what the others serve, and is refused
where it says otherwise; who leaves gets nothing new and finishes what it has. What they change
lasts until the router ends; a reload brings back those of the file that left.`,
		Example: `
  engine instances list
  engine instances join decode d3 http://10.0.0.7:7601
  engine instances drain d3 && engine instances leave d3`,
		RunE: group,
	}
	cmd.AddCommand(instancesListCommand(), instancesJoinCommand(),
		instancesChangeCommand(admin.FleetLeave, "Take an instance out of the list"),
		instancesChangeCommand(admin.FleetDrain, "Let an instance finish what it has from here"),
		instancesChangeCommand(admin.FleetResume, "Place requests on a drained instance again"))
	return cmd
}

func instancesListCommand() *cobra.Command {
	var address adminTarget
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list [--json] [--admin ADDR]",
		Short:   "List the instances behind a router",
		Example: "  engine instances list --json",
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return callInstances(cmd.Context(), address, nil, asJSON, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document")
	return cmd
}

func instancesJoinCommand() *cobra.Command {
	var address adminTarget
	cmd := &cobra.Command{
		Use:     "join ROLE NAME URL [--admin ADDR]",
		Short:   "Add an instance",
		Example: "  engine instances join decode d3 http://10.0.0.7:7601",
		Args:    takes(3, "ROLE", "NAME", "URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			change := admin.FleetChange{Action: admin.FleetJoin, Role: args[0], Name: args[1],
				URL: args[2]}
			return callInstances(cmd.Context(), address, &change, false, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	return cmd
}

// instancesChangeCommand is a command that names an instance.
func instancesChangeCommand(action, short string) *cobra.Command {
	var role string
	var address adminTarget
	cmd := &cobra.Command{
		Use:     action + " NAME [--role ROLE] [--admin ADDR]",
		Short:   short,
		Example: "  engine instances " + action + " d3",
		Args:    takes(1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			change := admin.FleetChange{Action: action, Role: role, Name: args[0]}
			return callInstances(cmd.Context(), address, &change, false, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	cmd.Flags().StringVar(&role, "role", "", "`ROLE`, where both have an instance of that name")
	return cmd
}
