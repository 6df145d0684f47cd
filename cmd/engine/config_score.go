package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/score"
)

// scorePolicy makes the module of a [policies.NAME] that has a score.
func scorePolicy(
	cfg *config.Config, p config.PolicyModule, spec plugins.Spec,
) (plugins.Spec, error) {
	wasm, err := score.Compile(score.Source{Name: p.Name, Score: p.Score, Chunk: p.Chunk})
	if err != nil {
		return spec, fmt.Errorf("policy %s: %w", p.Name, err)
	}
	spec.Wasm, spec.Limits = wasm, scoreLimits(cfg)
	return spec, nil
}

// scoreLimits lets a score be computed for the longest queue, unless the file limits the fuel.
func scoreLimits(cfg *config.Config) plugins.Limits {
	limits := policyLimits(cfg)
	if limits.Fuel == 0 {
		limits.Fuel = score.Fuel(cfg.Scheduler.MaxQueue + cfg.Scheduler.MaxNumSeqs)
	}
	return limits
}

// checkScore compiles the expressions of a policy and checks the module that they make.
func checkScore(ctx context.Context, cfg *config.Config, p config.PolicyModule) (
	string, *config.Problem,
) {
	spec, err := scorePolicy(cfg, p, plugins.Spec{})
	var wrong *score.Error
	if errors.As(err, &wrong) {
		problem := pointAt(cfg.At("policies."+p.Name+"."+wrong.Key), wrong)
		problem.Code = "E404"
		problem.Message = fmt.Sprintf("policy %q: the %s is not an expression", p.Name, wrong.Key)
		return "", &problem
	}
	limits := spec.Limits
	limits.Fuel = max(limits.Fuel, score.Fuel(checkedQueue))
	report := plugins.Check(ctx, spec.Wasm, nil, limits)
	if !report.OK() {
		problem := cfg.At("policies." + p.Name + ".score")
		problem.Code, problem.Label = "E403", report.Problems[0].Text
		problem.Message = fmt.Sprintf("policy %q is refused", p.Name)
		return "", &problem
	}
	return fmt.Sprintf("%s · score %s", p.Name, p.Score), nil
}

// checkedQueue is as long as the longest queue that a check makes.
const checkedQueue = 10_000

// pointAt moves a problem from a text's opening quote to the character that is wrong. A text that
// is written with escapes or over several lines is marked as a whole.
func pointAt(problem config.Problem, wrong *score.Error) config.Problem {
	problem.Label = wrong.Why
	line := []rune(problem.Source)
	if problem.Column < 1 || problem.Column > len(line) ||
		!strings.HasPrefix(string(line[problem.Column:]), wrong.Text) {
		return problem
	}
	problem.Column += 1 + utf8.RuneCountInString(wrong.Text[:wrong.Offset])
	end := min(wrong.Offset+wrong.Length, len(wrong.Text))
	problem.Span = max(1, utf8.RuneCountInString(wrong.Text[wrong.Offset:end]))
	return problem
}
