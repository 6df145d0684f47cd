package metrics

import "github.com/prometheus/client_golang/prometheus"

// outside are the five series that schedulers made for vLLM scrape: the same values, other names
// and labels.
type outside struct {
	waiting, running, usage prometheus.Gauge
	cache                   *prometheus.GaugeVec
}

func (o *outside) register(k maker, model string) {
	labels := prometheus.Labels{"model_name": model, "engine": "0"}
	k = maker{prometheus.WrapRegistererWith(labels, k.to)}
	o.waiting = k.gauge("vllm:num_requests_waiting", "Requests waiting, prepared or receiving.")
	o.running = k.gauge("vllm:num_requests_running", "Requests prefilling or decoding.")
	o.usage = k.gauge("vllm:kv_cache_usage_perc", "Share of KV pages in use, from 0 to 1.")
	o.cache = k.gauges("vllm:cache_config_info", "Size of the KV cache.",
		"block_size", "num_gpu_blocks")
	k.gauges("vllm:lora_requests_info", "Adapters in use: none.",
		"max_lora", "running_lora_adapters", "waiting_lora_adapters").
		WithLabelValues("0", "", "").Set(1)
}
