package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The words that choose what is measured; "" is a model's rates.
const (
	measureModel   = ""
	measureKernels = "kernels"
	measureServing = "serving"
	measureLoad    = "url"
)

// benchFlags are the flags that only some measurements read.
var benchFlags = func() map[string][]string {
	all := map[string][]string{}
	for _, of := range []struct {
		flags    string
		measures []string
	}{
		{"threads isa activations numerics kv-dtype repeat",
			[]string{measureModel, measureKernels, measureServing}},
		{"model beside-transfer", []string{measureModel, measureServing}},
		{"prompt generate batch depth peer", []string{measureModel}},
		{"dtype rows", []string{measureKernels}},
		{"streams in out", []string{measureServing, measureLoad}},
		{"key served-model rate duration requests cancel trace speed slo warmup seed " +
			"prefix-share", []string{measureLoad}},
	} {
		for name := range strings.FieldsSeq(of.flags) {
			all[name] = of.measures
		}
	}
	return all
}()

// fit refuses a flag that what is measured does not read: it would be ignored in silence.
func (o *benchOptions) fit(changed func(flag string) bool) error {
	measures := measureModel
	for name, chosen := range map[string]bool{measureKernels: o.kernels,
		measureServing: o.serving, measureLoad: o.url != ""} {
		switch {
		case chosen && measures != measureModel:
			return usageError("--kernels, --serving and --url are three measurements; choose one")
		case chosen:
			measures = name
		}
	}
	if strings.Contains(o.isa, ",") && measures != measureLoad {
		for _, isa := range o.isas() { // A name that nobody knows is told before their number.
			if _, err := o.config(isa); err != nil {
				return err
			}
		}
	}
	if measures != measureKernels && strings.Contains(o.isa, ",") {
		return usageError("--isa %s: several need --kernels; %s has one", o.isa,
			measureWords(measures))
	}
	o.kvGiven = changed("kv-dtype")
	for _, name := range slices.Sorted(maps.Keys(benchFlags)) {
		if of := benchFlags[name]; changed(name) && !slices.Contains(of, measures) {
			return usageError("--%s does not go with %s; it is for %s", name,
				measureWords(measures), measureList(of))
		}
	}
	return nil
}

// measureWords names a measurement by what chooses it.
func measureWords(measures string) string {
	if measures == measureModel {
		return "a model's rates"
	}
	return "--" + measures
}

func measureList(of []string) string {
	var words []string
	for _, m := range of {
		words = append(words, measureWords(m))
	}
	if last := len(words) - 1; last > 0 {
		return fmt.Sprintf("%s and %s", strings.Join(words[:last], ", "), words[last])
	}
	return words[0]
}
