package config

// servingKeys is the second half of the table: what decides when tokens are computed, how KV
// travels, and how the engine is reached.
var servingKeys = []row{
	{
		table: "scheduler", key: "max_num_seqs",
		at:  func(c *Config) any { return &c.Scheduler.MaxNumSeqs },
		def: `64`, least: "1", most: "65536", reload: true,
		foreign: []string{
			"max_running_requests", "max_num_sequence", "parallel", "n_parallel",
		},
		doc: "sequences that may hold pages at once → max_seqs",
	},
	{
		table: "scheduler", key: "token_budget",
		at:  func(c *Config) any { return &c.Scheduler.TokenBudget },
		def: `2048`, least: "1", most: "1048576", reload: true,
		foreign: []string{"max_num_batched_tokens", "max_prefill_tokens"},
		doc: "tokens computed in one step, prefill + decode (may be below max_num_seqs: " +
			"decodes then take turns) → token_budget",
	},
	{
		table: "scheduler", key: "chunk_max",
		at:  func(c *Config) any { return &c.Scheduler.ChunkMax },
		def: `"auto"`, least: "1", most: "1048576", reload: true,
		foreign: []string{"chunked_prefill_size", "prefill_chunk_size"},
		doc:     "prompt tokens of one request in one step; auto = token_budget → chunk_max",
	},
	{
		table: "scheduler", key: "chunk_align",
		at:  func(c *Config) any { return &c.Scheduler.ChunkAlign },
		def: `1`, least: "1", most: "65536", reload: true,
		doc: "a chunk that does not end its prompt is a multiple of this many tokens " +
			"→ chunk_align",
	},
	{
		table: "scheduler", key: "max_admit",
		at:  func(c *Config) any { return &c.Scheduler.MaxAdmit },
		def: `"auto"`, least: "1", most: "65536", reload: true,
		doc: "requests admitted in one step; auto = max_num_seqs → max_admit",
	},
	{
		table: "scheduler", key: "max_preempt",
		at:  func(c *Config) any { return &c.Scheduler.MaxPreempt },
		def: `8`, least: "0", most: "65536", reload: true,
		doc: "preemptions a policy may order in one step → decisions_cap = max_num_seqs + " +
			"max_preempt",
	},
	{
		table: "scheduler", key: "reserve_pages",
		at:  func(c *Config) any { return &c.Scheduler.ReservePages },
		def: `0`, least: "0", most: "16777216", reload: true,
		doc: "pages kept free beyond one for each running and admitted sequence " +
			"→ reserve_pages",
	},
	{
		table: "scheduler", key: "max_queue",
		at:  func(c *Config) any { return &c.Scheduler.MaxQueue },
		def: `512`, least: "1", most: "65536", reload: true,
		doc: "waiting requests; beyond: 429 queue_full",
	},
	{
		table: "scheduler", key: "queue_timeout",
		at:  func(c *Config) any { return &c.Scheduler.QueueTimeout },
		def: `"30s"`, least: `"10ms"`, most: `"24h"`,
		doc: "waiting longer for the first page, or a send for its next: 503 queue_timeout",
	},
	{
		table: "scheduler", key: "hard_age",
		at:  func(c *Config) any { return &c.Scheduler.HardAge },
		def: `"20s"`, least: `"1ms"`, most: `"24h"`, reload: true,
		doc: "starvation bound: a request waiting longer is put first by the host",
	},
	{
		table: "scheduler", key: "max_idle_steps",
		at:  func(c *Config) any { return &c.Scheduler.MaxIdleSteps },
		def: `50`, least: "1", most: "1000000", reload: true,
		doc: "starvation bound: a running request left out for this many steps is put first",
	},
	{
		table: "scheduler", key: "max_empty_steps",
		at:  func(c *Config) any { return &c.Scheduler.MaxEmptySteps },
		def: `16`, least: "1", most: "1000000", reload: true,
		doc: "empty answers in a row while work and budget exist; then a fault (bad_output)",
	},
	{
		table: "scheduler", key: "stall", at: func(c *Config) any { return &c.Scheduler.Stall },
		def: `"10s"`, least: `"100ms"`, most: `"24h"`,
		doc: "work waits and nothing ran for so long: /health/progress answers 503",
	},
	{
		table: "policy", key: "active", at: func(c *Config) any { return &c.Policy.Active },
		def: `"builtin:fcfs"`, reload: true,
		doc: "builtin:NAME or the NAME of a [policies.NAME]; decides order and chunk lengths",
	},
	{
		table: "policy", key: "select", at: func(c *Config) any { return &c.Policy.Select },
		def: `""`, reload: true,
		doc: "with chunk, instead of active: the module whose order and actions are used",
	},
	{
		table: "policy", key: "chunk", at: func(c *Config) any { return &c.Policy.Chunk },
		def: `""`, reload: true,
		doc: "with select, instead of active: the module that sets the chunk lengths",
	},
	{
		table: "policy", key: "on_fault", at: func(c *Config) any { return &c.Policy.OnFault },
		def: `"fallback"`, enum: []string{"fallback", "previous", "stop_admitting"}, reload: true,
		doc: "while a policy is set aside: fallback (native fcfs) | previous (the module before) " +
			"| stop_admitting (new requests: 503)",
	},
	{
		table: "policy", key: "keep", at: func(c *Config) any { return &c.Policy.Keep },
		def: `10`, least: "1", most: "1000", reload: true,
		doc: "versions kept for `engine policy rollback`",
	},
	{
		table: "policy", key: "seed", at: func(c *Config) any { return &c.Policy.Seed },
		def: `1`, doc: "the header's seed is a hash of this and the step number",
	},
	{
		table: "policy.limits", key: "fuel",
		at:  func(c *Config) any { return &c.Policy.Limits.Fuel },
		def: `"auto"`, least: "1000", most: "1000000000000", reload: true,
		doc: "units for one pol_decide; auto = 2_000_000, or what is measured at activation " +
			"to be 1 ms of CPU if that is more; or a number, equal everywhere",
	},
	{
		table: "policy.limits", key: "init_fuel",
		at:  func(c *Config) any { return &c.Policy.Limits.InitFuel },
		def: `500_000_000`, least: "1000", most: "1000000000000", reload: true,
		doc: "units for _initialize and pol_init",
	},
	{
		table: "policy.limits", key: "memory",
		at:  func(c *Config) any { return &c.Policy.Limits.Memory },
		def: `"16MiB"`, least: `"64KiB"`, most: `"64MiB"`, reload: true,
		doc: `linear memory of one instance; at most "64MiB"`,
	},
	{
		table: "policy.limits", key: "slow",
		at:  func(c *Config) any { return &c.Policy.Limits.Slow },
		def: `"300us"`, least: `"1us"`, most: `"10s"`, reload: true,
		doc: "p99 time of pol_decide (on Linux the processor's) above which the class slow is " +
			"counted; warns, never cuts off",
	},
	{
		table: "policy.limits", key: "log_lines",
		at:  func(c *Config) any { return &c.Policy.Limits.LogLines },
		def: `100`, least: "0", most: "100000", reload: true,
		doc: "lines per second from a module; more are counted and dropped",
	}, {
		table: "policy.breaker", key: "faults",
		at:  func(c *Config) any { return &c.Policy.Breaker.Faults },
		def: `3`, least: "1", most: "1000", reload: true,
		doc: "faults within window that set a policy aside",
	},
	{
		table: "policy.breaker", key: "window",
		at:  func(c *Config) any { return &c.Policy.Breaker.Window },
		def: `"60s"`, least: `"1ms"`, most: `"24h"`, reload: true,
	},
	{
		table: "policy.breaker", key: "backoff",
		at:  func(c *Config) any { return &c.Policy.Breaker.Backoff },
		def: `"1s"`, least: `"1ms"`, most: `"24h"`, reload: true,
		doc: "first wait before its probation; doubles up to backoff_max",
	},
	{
		table: "policy.breaker", key: "backoff_max",
		at:  func(c *Config) any { return &c.Policy.Breaker.BackoffMax },
		def: `"5m"`, least: `"1ms"`, most: `"24h"`, reload: true,
	},
	{
		table: "policy.breaker", key: "clean_steps",
		at:  func(c *Config) any { return &c.Policy.Breaker.CleanSteps },
		def: `200`, least: "1", most: "1000000", reload: true,
		doc: "steps of probation without a fault after which it is trusted again",
	},
	{
		table: "class.interactive", key: "deadline",
		at:  func(c *Config) any { return &c.Class.Interactive.Deadline },
		def: `"0s"`, least: `"0s"`, most: `"24h"`, reload: true,
		doc: "deadline_ns = arrival + this when the request brings none; \"0s\" = none",
	},
	{
		table: "class.interactive", key: "itl",
		at:  func(c *Config) any { return &c.Class.Interactive.ITL },
		def: `"0s"`, least: `"0s"`, most: `"1h"`, reload: true,
		doc: "longest gap wanted between two tokens → decode_due_ns; \"0s\" = none",
	},
	{
		table: "class.batch", key: "deadline",
		at:  func(c *Config) any { return &c.Class.Batch.Deadline },
		def: `"0s"`, least: `"0s"`, most: `"24h"`, reload: true,
		doc: "deadline_ns = arrival + this when the request brings none; \"0s\" = none",
	},
	{
		table: "class.batch", key: "itl",
		at:  func(c *Config) any { return &c.Class.Batch.ITL },
		def: `"0s"`, least: `"0s"`, most: `"1h"`, reload: true,
		doc: "longest gap wanted between two tokens → decode_due_ns; \"0s\" = none",
	},
	{
		table: "transfer", key: "transports",
		at:  func(c *Config) any { return &c.Transfer.Transports },
		def: `["ipc", "shm", "unix", "tcp"]`, enum: []string{"tcp", "unix", "shm", "ipc"},
		doc: "in order of preference; all but tcp: where both ends are of one user on one host; " +
			"ipc: GPU to GPU",
	},
	{
		table: "transfer", key: "peers", at: func(c *Config) any { return &c.Transfer.Peers },
		def: `["127.0.0.0/8", "::1/128"]`, form: peerForm, reload: true,
		doc: "networks or host names that this instance may dial; all else is refused",
	},
	{
		table: "transfer", key: "advertise",
		at:  func(c *Config) any { return &c.Transfer.Advertise },
		def: `"auto"`, form: hostPortForm, doc: "host:port that peers dial; auto = listen.internal",
	},
	{
		table: "transfer", key: "timeout", at: func(c *Config) any { return &c.Transfer.Timeout },
		def: `"4s"`, least: `"1ms"`, most: `"1h"`,
		doc: "no progress for so long: the transfer has failed (a reset connection at once)",
	},
	{
		table: "transfer", key: "max_rate", at: func(c *Config) any { return &c.Transfer.MaxRate },
		def: `"unlimited"`, reload: true,
		doc: `bytes per second this instance sends, over all links, such as "100MiB/s"`,
	},
	{
		table: "transfer", key: "max_inflight",
		at:  func(c *Config) any { return &c.Transfer.MaxInflight },
		def: `32`, least: "1", most: "4096",
		doc: "transfers at once, each direction; more wait",
	},
	{
		table: "transfer", key: "lease", at: func(c *Config) any { return &c.Transfer.Lease },
		def: `"60s"`, least: `"100ms"`, most: `"24h"`,
		doc: "a reservation that nobody writes or renews for so long is released",
	},
	{
		table: "transfer", key: "on_failure",
		at:  func(c *Config) any { return &c.Transfer.OnFailure },
		def: `"recompute"`, enum: []string{"recompute", "error"},
		doc: "decode instance: recompute the missing part itself, router: another instance goes " +
			"on with a stream | error (503 kv_transfer_failed)",
	},
	{
		table: "router", key: "strategy", at: func(c *Config) any { return &c.Router.Strategy },
		def: `"least_loaded"`, enum: []string{"least_loaded"},
		doc: "the fewest requests that wait and run; ties go to the first in the file",
	},
	{
		table: "router", key: "pd_balance", at: func(c *Config) any { return &c.Router.PDBalance },
		def: `0.0`, least: "0", most: "1", foreign: []string{"pd_balance_factor"},
		doc: "share of the prompt's tail that the decode instance computes; or \"auto\" = by load",
	},
	{
		table: "router", key: "min_remote_tokens",
		at:  func(c *Config) any { return &c.Router.MinRemoteTokens },
		def: `0`, least: "0", most: "1048576",
		doc: "fewer uncached prompt tokens than this: no remote prefill",
	},
	{
		table: "router", key: "retries", at: func(c *Config) any { return &c.Router.Retries },
		def: `1`, least: "0", most: "10",
		doc: "other instances tried for a request, anew after each token that one brought",
	},
	{
		table: "router", key: "connect_timeout",
		at:  func(c *Config) any { return &c.Router.ConnectTimeout },
		def: `"1s"`, least: `"1ms"`, most: `"1m"`,
	},
	{
		table: "router", key: "health_interval",
		at:  func(c *Config) any { return &c.Router.HealthInterval },
		def: `"2s"`, least: `"10ms"`, most: `"1h"`,
		doc: "/ready of each instance is asked this often; 3 failures in a row take it out, a " +
			"refused connection at once",
	},
	{
		table: "api", key: "request_timeout",
		at:  func(c *Config) any { return &c.API.RequestTimeout },
		def: `"10m"`, least: `"10ms"`, most: `"24h"`, doc: "whole request",
	},
	{
		table: "api", key: "write_timeout", at: func(c *Config) any { return &c.API.WriteTimeout },
		def: `"30s"`, least: `"10ms"`, most: `"1h"`,
		doc: "a reader that takes nothing for so long is cancelled",
	},
	{
		table: "api", key: "sse_keepalive", at: func(c *Config) any { return &c.API.SSEKeepalive },
		def: `"15s"`, least: `"0s"`, most: `"1h"`,
		doc: `comment line while nothing else is sent; "0s" = off`,
	},
	{
		table: "api", key: "max_body", at: func(c *Config) any { return &c.API.MaxBody },
		def: `"32MiB"`, least: `"1KiB"`, most: `"1GiB"`, doc: "beyond: 413",
	},
	{
		table: "api", key: "max_connections",
		at:  func(c *Config) any { return &c.API.MaxConnections },
		def: `8192`, least: "1", most: "1000000",
		doc: "beyond: 503 too_many_connections, connection closed",
	},
	{
		table: "api", key: "max_header", at: func(c *Config) any { return &c.API.MaxHeader },
		def: `"64KiB"`, least: `"1KiB"`, most: `"1MiB"`, doc: "beyond: 431",
	},
	{
		table: "api", key: "max_n", at: func(c *Config) any { return &c.API.MaxN },
		def: `8`, least: "1", most: "128", doc: "bound of the request's n",
	},
	{
		table: "api", key: "max_stop", at: func(c *Config) any { return &c.API.MaxStop },
		def: `16`, least: "1", most: "64",
		doc: "bound of its stop strings, each at most 4 KiB",
	},
	{
		table: "api", key: "ui", at: func(c *Config) any { return &c.API.UI },
		def: `true`, doc: "the page at /ui",
	},
}
