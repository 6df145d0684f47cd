package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/bench"
)

func benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a model's rates, or a server under load",
		Long: `
Without --url, loads a model in this process and prints how many tokens a second it takes in (pp)
and generates (tg), with the labels of llama-bench: pp512 is a prompt of 512 tokens, "tg64 x8" are
64 tokens of each of 8 sequences, "@ d2048" behind 2048 tokens. --peer runs llama-bench on the same
file beside it, round by round, and prints the ratios; of several sequences llama-batched-bench, if
it lies beside llama-bench. --beside-transfer compares with the same while keys and values are
carried over loopback in this process, and tells what part of the processors that takes alone.
--isa, --activations, --numerics and --kv-dtype are backend.isa, backend.activations,
backend.numerics and kv_cache.dtype of the file; a result names them.

With --kernels, measures the device's kernels one by one, on the shapes of SmolLM2-135M, against
what loops of nothing but such work reach on this machine: arithmetic in GFLOP/s, reading in GB/s.

With --serving, starts an engine in this process and compares what it serves to --streams requests
at once, over HTTP and from a load generator in a niced process, with the model's bare loop on as
many sequences; and tells the parts of the time that the stages of the engine's loop take. Streams
that take under a second are followed by others: both then count whole requests, with prompts.

With --url, sends requests to a server that speaks OpenAI's API: at --rate a second (Poisson) or
--streams at once. Prompts are token ids that the server's /tokenize gives. The table is that of
vLLM's own benchmark.`,
		Example: `  engine bench --model model.gguf -p 512,2048 -n 64 --batch 1,8
  engine bench --model model.gguf --peer llama.cpp/build/bin/llama-bench
  engine bench --model model.gguf --isa amx --numerics tdp --kv-dtype bf16
  engine bench --kernels --dtype f16,q8_0 --rows 1,16,512 --threads 2
  engine bench --serving --model model.gguf --streams 16
  engine bench --url http://127.0.0.1:8080 --streams 16 --requests 200 --in 512 --out 128
  engine bench --url http://127.0.0.1:8080 --rate 2 --duration 60s --slo ttft=2s,tpot=80ms
  engine bench compare before.json after.json --least 0.97`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.fit(cmd.Flags().Changed); err != nil {
				return err
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return o.run(cmd.Context(), s)
		},
		Annotations: map[string]string{exits: "1 2 69", usages: "engine bench [--model PATH]\n" +
			"engine bench --kernels\nengine bench --serving [--model PATH]\n" +
			"engine bench --url URL\nengine bench compare BEFORE.json AFTER.json\n" +
			"engine bench gate BEFORE [-- FLAGS]"},
	}
	o.flags(cmd)
	cmd.AddCommand(benchCompareCommand(), benchGateCommand())
	return cmd
}

// benchOptions is what `engine bench` was asked for.
type benchOptions struct {
	benchModel
	benchKernels
	benchLoad
	benchServing
	json, page string
}

func (o *benchOptions) flags(cmd *cobra.Command) {
	o.benchServing.benchModel, o.benchServing.benchLoad = &o.benchModel, &o.benchLoad
	f := cmd.Flags()
	f.StringVar(&o.path, "model", "",
		"`PATH` of a folder or GGUF file, or ORG/NAME; default: embedded")
	f.IntSliceVarP(&o.prompts, "prompt", "p", []int{512}, "prompt `LENGTHS`")
	f.IntSliceVarP(&o.generate, "generate", "n", []int{64}, "`LENGTHS` to generate")
	f.IntSliceVar(&o.batches, "batch", []int{1}, "sequences that generate at once")
	f.IntSliceVarP(&o.depths, "depth", "d", []int{0}, "tokens that are there before")
	f.IntVar(&o.repeat, "repeat", 5, "rounds")
	o.benchDevice.flags(cmd)
	f.StringVar(&o.peer, "peer", "", "`PATH` of llama-bench, for the same file in every round")
	f.BoolVar(&o.kernels, "kernels", false, "measure the kernels of the device")
	f.StringSliceVar(&o.dtypes, "dtype", nil, "`TYPES` of weights for --kernels; default: all")
	f.IntSliceVar(&o.rows, "rows", []int{1, 2, 4, 8, 16, 32, 64, 128, 512},
		"rows of a batch for --kernels")
	f.BoolVar(&o.serving, "serving", false, "compare the model's bare loop with a whole engine")
	f.StringVar(&o.url, "url", "", "`URL` of a server to load")
	f.StringVar(&o.key, "key", "", "API `KEY`; default: $OPENAI_API_KEY")
	f.StringVar(&o.name, "served-model", "", "`NAME` of the model; default: the first listed")
	f.Float64Var(&o.plan.Rate, "rate", 0, "requests a second, at Poisson times")
	f.IntVar(&o.plan.Streams, "streams", 0, "requests at once; default 1 without --rate,"+
		" 16 with --serving")
	f.DurationVar(&o.plan.Duration, "duration", 0, "no request begins after it")
	f.IntVar(&o.plan.Requests, "requests", 0, "most requests; default 100 without --duration")
	f.IntVar(&o.plan.In, "in", 0,
		"prompt tokens of a request; default 512, less in a short context")
	f.IntVar(&o.plan.Out, "out", 128, "tokens to generate")
	f.Float64Var(&o.plan.Share, "prefix-share", 0, "part of each prompt that all share")
	f.Float64Var(&o.plan.Cancel, "cancel", 0, "part of the requests that hang up midway")
	f.Uint64Var(&o.plan.Seed, "seed", 1, "of prompts and times")
	f.StringVar(&o.trace, "trace", "", "`FILE` of requests in the form of the Mooncake traces")
	f.Float64Var(&o.speed, "speed", 1, "how much faster than it was the trace runs")
	f.StringVar(&o.slo, "slo", "", "`TARGETS` of a good request: ttft=2s,tpot=80ms,e2e=30s")
	f.IntVar(&o.warmup, "warmup", 5, "requests before the measured ones")
	f.StringVar(&o.json, "json", "", "save the result as JSON in `FILE`")
	f.StringVar(&o.page, "html", "", "save a page with plots as `FILE`")
}

// run measures and saves.
func (o *benchOptions) run(ctx context.Context, s streams) error {
	if err := canMake("--json", o.json); err != nil {
		return err
	}
	if err := canMake("--html", o.page); err != nil {
		return err
	}
	measure := o.benchModel.run
	switch {
	case o.kernels:
		measure = func(ctx context.Context, s streams) (*bench.Result, error) {
			return o.benchKernels.run(ctx, s, &o.benchModel)
		}
	case o.serving:
		measure = o.benchServing.run
	case o.url != "":
		measure = o.benchLoad.run
	}
	result, err := measure(ctx, s)
	if err != nil {
		return err
	}
	result.When = time.Now()
	return o.save(result, s.err)
}
