package main

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/config"
)

// becameOf says what each "auto" became, as far as it can be told without the model's weights.
func becameOf(cfg *config.Config) map[string]string {
	became := map[string]string{
		"node.name":              cfg.NodeName(),
		"transfer.advertise":     cfg.Listen.Internal,
		"backend.threads":        fmt.Sprintf("%d, the cores this process may use", threads(cfg)),
		"scheduler.chunk_max":    fmt.Sprintf("%d, the token budget", cfg.Scheduler.TokenBudget),
		"scheduler.max_admit":    fmt.Sprintf("%d, max_num_seqs", cfg.Scheduler.MaxNumSeqs),
		"policy.limits.fuel":     fuelWords(),
		"kv_cache.memory":        "max_num_seqs × max_model_len, at most memory_fraction",
		"model.chat_template":    "the model's own",
		"model.max_model_len":    "the model's own limit",
		"model.defaults.seed":    "random for each request",
		"telemetry.log_format":   "text on a terminal, else JSON",
		"kv_cache.prefix_memory": "whatever is free",
	}
	for key, folder := range map[string]func() (string, error){
		"node.state_dir": cfg.StateDir, "node.cache_dir": cfg.CacheDir,
		"listen.admin": cfg.AdminAddress,
	} {
		if path, err := folder(); err == nil {
			became[key] = path
		}
	}
	return became
}

// threads is backend.threads.
func threads(cfg *config.Config) int { return cfg.Backend.Threads.Or(cores()) }

// fuelWords is the automatic limit of one pol_decide.
func fuelWords() string {
	return fmt.Sprintf("%d, and %d more for each changed record",
		abi.LimitFuelBase, abi.LimitFuelPerChanged)
}
