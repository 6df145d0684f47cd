package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/hub"
)

func pullCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pull ORG/NAME[@REVISION] [FILE.gguf]",
		Short: "Fetch a model from a hub",
		Long: `
Fetches what an engine needs of a model from the Hugging Face hub, or from one that behaves like
it: its configuration, tokenizer, chat template and safetensors weights; a GGUF file only when it
is named. What is here already is not fetched again, and a pull that was cut goes on where it
ended. Every file is checked against the hash that the hub announces.

The files go where the hub's own client keeps them, so that each finds what the other has fetched.
HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE and HF_HOME mean what they mean to that client.`,
		Example: `  engine pull HuggingFaceTB/SmolLM2-135M-Instruct
  engine pull ORG/NAME@v1.0 && engine run --model ORG/NAME@v1.0 "Hello"
  engine pull ORG/NAME-GGUF NAME-Q8_0.gguf`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usageError("%s takes a model and at most one file", cmd.CommandPath())
			}
			return takes(2, "ORG/NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := hub.ParseRef(args[0])
			if err != nil {
				return usageError("%w", err)
			}
			o := pullOptions{ref: ref, json: asJSON}
			if len(args) == 2 {
				o.file = args[1]
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return pullModel(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2 75"},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// pullOptions is what `engine pull` was asked for.
type pullOptions struct {
	ref  hub.Ref
	file string // the GGUF file; "" is what an engine needs
	json bool
}

// pullModel fetches, with its progress on stderr and the answer on stdout.
func pullModel(ctx context.Context, o pullOptions, s streams) error {
	settings, err := hubSettings()
	if err != nil {
		return err
	}
	client := hub.New(hub.Options{Settings: settings, UserAgent: "engine/" + release})
	begun := time.Now()
	screen := newPullScreen(s.err, o.ref)
	here, err := client.Pull(ctx, o.ref, o.file, screen)
	screen.close(err != nil)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("stopped; the same command goes on from what is here")
	case errors.Is(err, hub.ErrTemporary):
		return &failure{exitTemporary, err}
	case err != nil:
		return err
	}
	if o.json {
		return json.NewEncoder(s.out).Encode(shownModel(here))
	}
	fetched, bytes := screen.fetched()
	fmt.Fprintf(s.out, "%s %s\n  %s fetched and verified, %s in %.1f s · %d were here\n  %s\n",
		o.ref, here.Commit[:7], plural(fetched, "file"), size(int(bytes)),
		time.Since(begun).Seconds(), screen.present, here.Path)
	if len(here.Missing) == 0 {
		_, err = fmt.Fprintf(s.out, "next: engine run --model %s\n", o.ref)
	}
	return err
}
