package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/tokenizer"
)

// maxJSONLine bounds one line of input.
const maxJSONLine = 64 << 20

func tokenizeCommand() *cobra.Command {
	var folder string
	var noSpecial, jsonLines bool
	cmd := &cobra.Command{
		Use:   "tokenize [--model PATH] [--no-special] --json-lines",
		Short: "Text to token ids, a line each",
		Long: `
Reads a JSON string a line from stdin and writes {"ids":[…]} a line to stdout. PATH is a folder,
which needs no more than a tokenizer.json, or a GGUF file. The text of special tokens, such as
"<s>", counts as these tokens.`,
		Example: `  echo '"In the beginning"' | engine tokenize --model models/llama --json-lines`,
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !jsonLines {
				return usageError("tokenize needs --json-lines")
			}
			at, err := findModel(folder, ".")
			if err != nil {
				return err
			}
			files, err := at.files()
			if err != nil {
				return err
			}
			tok, err := tokenizer.Load(files)
			if err != nil {
				return fmt.Errorf("%s: %w", at.name, err)
			}
			encode := func(text string) []int32 {
				return tok.Encode(text, tokenizer.EncodeOptions{
					AddSpecial: !noSpecial, ParseSpecial: true,
				})
			}
			in := untilStopped(cmd.Context(), cmd.InOrStdin())
			return tokenizeLines(in, cmd.OutOrStdout(), encode)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&folder, "model", "",
		"`PATH` of a folder or GGUF file, or ORG/NAME; without it, the embedded model")
	cmd.Flags().BoolVar(&noSpecial, "no-special", false, "add no BOS and no other special token")
	cmd.Flags().BoolVar(&jsonLines, "json-lines", false,
		"the only form of input and output there is")
	return cmd
}

// tokenizeLines answers line by line, so that it can serve as a co-process.
func tokenizeLines(in io.Reader, out io.Writer, encode func(string) []int32) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxJSONLine)
	answer := json.NewEncoder(out)
	for number := 1; lines.Scan(); number++ {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			return fmt.Errorf("line %d is not a JSON string: %w", number, err)
		}
		if err := answer.Encode(map[string][]int32{"ids": encode(text)}); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read stdin: %w", err)
	}
	return nil
}
