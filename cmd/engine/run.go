package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

// runOptions are the flags of `engine run`. What was not given is not set.
type runOptions struct {
	file        string // -c
	model       config.Auto[string]
	maxTokens   config.Auto[int]
	temperature config.Auto[float64]
	seed        config.Auto[int64]
	ignoreEOS   bool
	backend     string // "" is the file's
	json        bool
	chat        bool    // the prompt is a message, in the model's template
	tokenIDs    []int32 // used as they are, instead of a prompt
	prompt      config.Auto[string]
}

func runCommand() *cobra.Command {
	var o runOptions
	var model, ids string
	var maxTokens int
	var temperature float64
	var seed int64
	cmd := &cobra.Command{
		Use:   `run [flags] ["PROMPT"]`,
		Short: "Continue a prompt: prefill, transfer and decode in one process",
		Long: `
Continues one prompt and says what happened. The prompt is computed by a prefill engine, its keys
and values travel over a real socket, a decode engine generates, and a policy module in
WebAssembly decides each step, all in this process. Without -c the model is the embedded one.

The text goes to stdout, the summary to stderr. Without a prompt, stdin is the prompt; if that is
a terminal, a chat begins, with the model's own template. A prompt is continued as it is; --chat
makes it a user's message, as a chat would. A prompt that does not fit the context is refused with
the numbers; it is never cut.`,
		Example: `  engine run "In the beginning"
  engine run --model models/llama --max-tokens 40 --temperature 0 "Once upon a time"
  engine run --json --token-ids 1,403,407 | jq .disagg
  echo "In the beginning" | engine run
  engine run --model ORG/NAME --chat <question.txt
  engine run --model ORG/NAME               chat`,
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			o.model = config.Auto[string]{Set: given("model"), Value: model}
			o.maxTokens = config.Auto[int]{Set: given("max-tokens"), Value: maxTokens}
			o.temperature = config.Auto[float64]{Set: given("temperature"), Value: temperature}
			o.seed = config.Auto[int64]{Set: given("seed"), Value: seed}
			if len(args) == 1 {
				o.prompt = config.To(args[0])
			}
			if err := o.check(ids, given("token-ids")); err != nil {
				return err
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return runPrompt(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2 78"},
	}
	fileFlag(cmd, &o.file)
	flags := cmd.Flags()
	flags.StringVar(&model, "model", "",
		"`PATH` of a folder or GGUF file, or ORG/NAME, instead of the file's")
	flags.StringVar(&o.backend, "backend", "", "cpu or cuda, instead of the file's")
	flags.IntVar(&maxTokens, "max-tokens", 0,
		"most tokens to generate; default: to the context's end")
	flags.Float64Var(&temperature, "temperature", 0, "0 is greedy; default: the model's own")
	flags.Int64Var(&seed, "seed", 0, "of sampling; default: random")
	flags.BoolVar(&o.ignoreEOS, "ignore-eos", false, "go on past the model's end of text")
	flags.StringVar(&ids, "token-ids", "",
		"`IDS` separated by commas instead of a prompt, no BOS added")
	flags.BoolVar(&o.chat, "chat", false,
		"the prompt is a user's message, in the model's chat template")
	flags.BoolVar(&o.json, "json", false, "one JSON document on stdout instead of the text")
	return cmd
}

// check reads the token ids and refuses what does not go together.
func (o *runOptions) check(ids string, given bool) error {
	if given && o.prompt.Set {
		return usageError("--token-ids and a prompt exclude each other")
	}
	if given && o.chat {
		return usageError("--token-ids are used as they are: --chat does not go with them")
	}
	if o.maxTokens.Set && o.maxTokens.Value < 1 {
		return usageError("--max-tokens %d: at least 1", o.maxTokens.Value)
	}
	if o.temperature.Value < 0 || o.temperature.Value > 2 {
		return usageError("--temperature %v: between 0 and 2", o.temperature.Value)
	}
	if o.backend != "" && o.backend != "cpu" && o.backend != "cuda" {
		return usageError("--backend %q: cpu or cuda", o.backend)
	}
	if !given {
		return nil
	}
	for part := range strings.SplitSeq(ids, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || id < 0 {
			return usageError("--token-ids: %q is not a token id", part)
		}
		o.tokenIDs = append(o.tokenIDs, int32(id))
	}
	return nil
}
