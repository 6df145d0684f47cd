package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/export"
	"github.com/kvrelay/engine/host/model/safetensors"
)

func quantizeCommand() *cobra.Command {
	o := quantizeOptions{kind: "Q8_0"}
	cmd := &cobra.Command{
		Use:   "quantize IN OUT.gguf",
		Short: "Write a model's folder as one GGUF file, its weights shorter",
		Long: `
Reads a Hugging Face folder (or ORG/NAME, as pull brings it) and writes it as one GGUF file with
its tokenizer and chat template: a file that this engine runs, and others that read GGUF.

--type is what matrices become: Q8_0 (8.5 bits a number, nearly the same logits), Q4_K (4.5 bits),
Q4_0 (4.5 bits, simpler and a little worse), or without rounding down F16, BF16, F32. Norms and
biases stay F32. In four-bit files the embedding and the head are Q8_0.`,
		Example: `  engine quantize models/llama llama-Q8_0.gguf
  engine quantize ORG/NAME name-Q4_K.gguf --type Q4_K && engine run --model name-Q4_K.gguf "Hello"`,
		Args: takes(2, "IN", "OUT.gguf"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.in, o.out = args[0], args[1]
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return quantize(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&o.kind, "type", o.kind,
		"`TYPE` of the matrices: "+strings.Join(slices.Sorted(maps.Keys(export.Types)), ", "))
	cmd.Flags().BoolVar(&o.force, "force", false, "replace OUT.gguf if it is there")
	return cmd
}

type quantizeOptions struct {
	in, out, kind string
	force         bool
}

// quantize writes beside the target and renames at the end: nobody sees half a file. It ends with
// ctx, after the row at hand.
func quantize(ctx context.Context, o quantizeOptions, s streams) error {
	to, ok := export.Types[strings.ToUpper(o.kind)]
	switch {
	case !ok:
		return usageError("--type %s is not known; there are %s", o.kind,
			strings.Join(slices.Sorted(maps.Keys(export.Types)), ", "))
	case !model.IsGGUF(o.out):
		return usageError("%s should end in .gguf, by which it is found to be one", o.out)
	}
	if err := o.hasRoom(); err != nil {
		return err
	}
	at, err := findModel(o.in, ".")
	if err != nil {
		return err
	}
	if model.IsGGUF(at.path) {
		return fmt.Errorf("%s is a GGUF file already; quantize the folder that it was made from: "+
			"rounding twice is worse", o.in)
	}
	weights, err := safetensors.Open(at.path)
	if err != nil {
		return fmt.Errorf("%s: %w", o.in, err)
	}
	defer weights.Close()
	file, err := os.CreateTemp(filepath.Dir(o.out), ".quantize-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", o.out, bare(err))
	}
	defer os.Remove(file.Name())
	show := newLoading(ctx, s.err, slog.New(slog.DiscardHandler))
	show.what = "writing"
	report, err := export.Write(file, export.Job{Files: os.DirFS(at.path), Weights: weights,
		Name: at.name, Type: to, Progress: show.progress})
	show.end()
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), o.out)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("stopped; %s was not written", o.out)
	}
	if err != nil {
		return fmt.Errorf("write %s as %s: %w", o.in, o.out, bare(err))
	}
	return tellQuantized(o, report, s)
}

func tellQuantized(o quantizeOptions, report *export.Report, s streams) error {
	info, err := os.Stat(o.out)
	if err != nil {
		return err
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(report.Tensors)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", report.Tensors[kind], kind))
	}
	if report.Tensors[strings.ToUpper(o.kind)] == 0 {
		fmt.Fprintf(s.err, "no matrix became %s: its rows are no multiple of a block's length\n",
			strings.ToUpper(o.kind))
	}
	_, err = fmt.Fprintf(s.out, "%s  %s\n  tensors: %s\nnext: engine run --model %s\n",
		o.out, size(int(info.Size())), strings.Join(kinds, ", "), o.out)
	return err
}
