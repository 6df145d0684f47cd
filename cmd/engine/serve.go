package main

import (
	"github.com/spf13/cobra"
)

// serveOptions are the flags of `engine serve`.
type serveOptions struct {
	file  string // -c
	demo  bool
	model string // of the demonstration; "" is the embedded one
	out   string // folder of the demonstration's files; "" is a new one in the state folder
	// untilEOF ends the instance with stdin: the demonstration's processes end with their parent.
	untilEOF bool
}

func serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI API",
		Long: `
Runs one instance until it is told to stop: everything in one process, or the role that the file
names. With --demo-pd it starts three processes on loopback, a prefill instance, a decode instance
and a router, and writes their TOML files to a folder, so that each can also be started by hand. A
port that is taken is replaced by the next free one; the lines show which. The demonstration ends
when one of the three ends.`,
		Example: `
  engine serve                              one process, 127.0.0.1:8080, embedded model
  engine serve -c engine.toml
  engine serve --demo-pd --model models/llama --out demo`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.demo && o.file != "" {
				return usageError("--demo-pd writes its own files; leave out -c")
			}
			if !o.demo && (o.model != "" || o.out != "") {
				return usageError("--model and --out go with --demo-pd; a file has model.path")
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			if o.demo {
				return serveDemo(cmd.Context(), o, s)
			}
			return serveInstance(cmd.Context(), o, s)
		},
		Annotations: map[string]string{
			exits: "1 2 75 78",
			usages: "engine serve [-c FILE]\n" +
				"engine serve --demo-pd [--model PATH] [--out DIR]",
		},
	}
	fileFlag(cmd, &o.file)
	flags := cmd.Flags()
	flags.BoolVar(&o.demo, "demo-pd", false, "prefill, decode and router as three processes here")
	flags.StringVar(&o.model, "model", "",
		"`PATH` of a folder or GGUF file, or ORG/NAME, for the demonstration")
	flags.BoolVar(&o.untilEOF, "until-eof", false, "end when stdin ends")
	flags.Lookup("until-eof").Hidden = true
	flags.StringVar(&o.out, "out", "", "`DIR` for the demonstration's files and logs")
	return cmd
}
