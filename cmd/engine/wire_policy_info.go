package main

import (
	"fmt"
	"net/http"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/metrics"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/plugins"
)

// shownDigest is how much of a digest the series shows.
const shownDigest = 12

// metricsHandler serves the series. Whether requests are taken and which policies are in place is
// asked when somebody looks, for both change on ways that tell nobody, such as a lost device or a
// module that is set aside.
func (i *instance) metricsHandler(ready func() *openai.Error) http.Handler {
	series := i.metrics.Handler()
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.metrics.SetReady(!i.drain.leaving.Load() && ready() == nil)
		series.ServeHTTP(w, r)
	})
	if i.policies == nil {
		return serve
	}
	version := fmt.Sprintf("%d.%d", abi.Major, abi.Minor)
	i.metrics.SetPolicy(metrics.SlotFallback, metrics.PolicyInfo{Policy: "native:fcfs",
		ABI: version})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := map[plugins.State]metrics.PolicyInfo{}
		for _, p := range i.policies.List() {
			in[p.State] = metrics.PolicyInfo{Policy: p.Name, Version: p.Version,
				Digest: p.Digest[:min(shownDigest, len(p.Digest))], ABI: version}
		}
		i.metrics.SetPolicy(metrics.SlotActive, in[plugins.StateActive])
		i.metrics.SetPolicy(metrics.SlotSelect, in[plugins.StateSelect])
		i.metrics.SetPolicy(metrics.SlotChunk, in[plugins.StateChunk])
		i.metrics.SetPolicy(metrics.SlotPrevious, in[plugins.StatePrevious])
		serve.ServeHTTP(w, r)
	})
}
