package config

import "slices"

// sections are the tables in the order of the file. A section with a sample holds tables of the
// user's own naming, which the example shows as comments.
var sections = []section{
	{name: ""},
	{name: "node"},
	{name: "listen", doc: `"" = not opened`},
	{name: "model", doc: `ignored with a note when role = "router"`},
	{name: "model.defaults", doc: "used when the request leaves the field out; " +
		"auto = generation_config.json, else the number"},
	{name: "backend"},
	{name: "kv_cache"},
	{name: "scheduler"},
	{name: "policy"},
	{name: "policy.limits"},
	{name: "policy.breaker", doc: "when a policy that fails is set aside, and trusted again"},
	{name: "policies", sample: policiesSample},
	{name: "tenants", sample: tenantsSample},
	{name: "class.interactive", doc: "requests with X-Class: interactive"},
	{name: "class.batch", doc: "requests with X-Class: batch"},
	{name: "transfer", doc: "KV from prefill to decode"},
	{name: "router", doc: `role = "router"`},
	{name: "router.prefill", list: true, sample: routerSample},
	{name: "router.decode", list: true},
	{name: "api"},
	{name: "api.cors"},
	{name: "api.tls", doc: `both "" = plain HTTP; read again when the files change`},
	{name: "auth"},
	{name: "limits", doc: "for each key, or each address without keys; a key may override; " +
		"0 = unlimited"},
	{name: "telemetry"},
	{name: "shutdown", doc: "at SIGTERM what is under way ends and nothing new is taken"},
}

const policiesSample = `
# [policies.mine]                      # one table for each module; a hyphen in NAME is fine
# path   = "policies/mine.wasm"        # file, or builtin:NAME to give that one settings
# sha256 = ""                          # pin, 64 hex digits; "" = not pinned
# config = { aging_tokens_per_s = 200 } # given to pol_init as JSON
# or, in place of the three, one expression for each request; the smallest runs first:
# score = "remaining_prefill - 200*age_s" # words: fields of abi/SPEC.md, age_s, deadline_s, budget
# chunk = "min(1024, budget)"          # prompt tokens of it in one step
`

const tenantsSample = `
# [tenants.acme]                       # one table for each tenant; without one: weight 1, no bound
# weight   = 1.0                       # share for policies that weigh tenants → weight_milli / 1000
# max_seqs = 0                         # requests that may hold pages; 0 = no bound of its own
`

const routerSample = `
# [[router.prefill]]                   # one for each instance; likewise [[router.decode]]
# name = "p0"
# url  = "http://127.0.0.1:7602"       # its listen.internal
`

// keys is the table. Names follow the field where the meaning is the same (max_model_len,
// max_num_seqs); foreign lists what other servers call the same thing.
var keys = slices.Concat(modelKeys, servingKeys, doorKeys, telemetryKeys)

// modelKeys is the first half: who an instance is, its model, device and pages.
var modelKeys = []row{
	{
		table: "node", key: "role", at: func(c *Config) any { return &c.Node.Role },
		def: `"all"`, enum: []string{"all", "prefill", "decode", "router"},
		alias: map[string]string{"both": "all", "mixed": "all"},
		doc:   "all | prefill | decode | router",
	},
	{
		table: "node", key: "name", at: func(c *Config) any { return &c.Node.Name },
		def: `"auto"`, form: nameForm,
		doc: "label on metrics and logs; auto = HOST-ROLE",
	},
	{
		table: "node", key: "state_dir", at: func(c *Config) any { return &c.Node.StateDir },
		def: `"auto"`, path: true,
		doc: "policy history, inputs at which policies failed, demos; " +
			"auto = $XDG_STATE_HOME/engine",
	},
	{
		table: "node", key: "cache_dir", at: func(c *Config) any { return &c.Node.CacheDir },
		def: `"auto"`, path: true,
		doc: "compiled policies, mode 0700; auto = $XDG_CACHE_HOME/engine",
	},
	{
		table: "listen", key: "api", at: func(c *Config) any { return &c.Listen.API },
		def: `"127.0.0.1:8080"`, form: listenForm, path: true,
		foreign: []string{"host", "port", "bind", "address"},
		doc:     `OpenAI API, /live, /ready, /metrics; or "unix:PATH"`,
	},
	{
		table: "listen", key: "admin", at: func(c *Config) any { return &c.Listen.Admin },
		def: `"auto"`, form: listenForm, path: true,
		doc: "reload, policies; auto = unix socket NAME.sock in $XDG_RUNTIME_DIR/engine, none " +
			"where that cannot be made; or a loopback host:port",
	},
	{
		table: "listen", key: "internal", at: func(c *Config) any { return &c.Listen.Internal },
		def: `"127.0.0.1:7601"`, form: hostPortForm,
		doc: "micro-serving HTTP and KV frames on one port; /live, /ready, /metrics",
	},
	{
		table: "model", key: "path", at: func(c *Config) any { return &c.Model.Path },
		def: `""`, path: true,
		doc: `Hugging Face folder, GGUF file or ORG/NAME; "" = the embedded model`,
	},
	{
		table: "model", key: "served_names",
		at:  func(c *Config) any { return &c.Model.ServedNames },
		def: `[]`, foreign: []string{"served_model_name", "alias"},
		doc: `names clients may send as "model", the first is canonical; [] = the folder's name`,
	},
	{
		table: "model", key: "additional",
		at:  func(c *Config) any { return &c.Model.Additional },
		def: `[]`, path: true,
		foreign: []string{"additional_models", "draft_model", "model_draft", "speculative_model"},
		doc: "models that run over the same tokens beside the first, with its vocabulary: " +
			"drafts; their keys and values are cached and handed over with its own",
	},
	{
		table: "model", key: "max_model_len",
		at:  func(c *Config) any { return &c.Model.MaxModelLen },
		def: `"auto"`, least: "2", most: "16777216",
		foreign: []string{"ctx_size", "n_ctx", "num_ctx", "context_length", "max_seq_len"},
		doc:     "tokens, prompt + output, of one request; auto = the model's own limit",
	},
	{
		table: "model", key: "dtype", at: func(c *Config) any { return &c.Model.DType },
		def: `"auto"`, enum: []string{"auto", "f32", "f16", "bf16"}, alias: dtypeAlias,
		doc: "weights in memory: auto = as stored | f32 | f16 | bf16",
	},
	{
		table: "model", key: "attention_sinks",
		at:  func(c *Config) any { return &c.Model.AttentionSinks },
		def: `0`, least: "0", most: "65536",
		doc: "first tokens that stay visible when a sliding window moves on; only for models " +
			"with one",
	},
	{
		table: "model", key: "chat_template",
		at:  func(c *Config) any { return &c.Model.ChatTemplate },
		def: `"auto"`, path: true,
		doc: "auto = the model's own; or the path of a .jinja file",
	},
	{
		table: "model", key: "tool_parser", at: func(c *Config) any { return &c.Model.ToolParser },
		def: `"auto"`, enum: []string{"auto", "none", "llama3", "qwen", "mistral"},
		doc: "auto = from the template | none | llama3 | qwen | mistral",
	},
	{
		table: "model.defaults", key: "temperature",
		at:  func(c *Config) any { return &c.Model.Defaults.Temperature },
		def: `"auto"`, least: "0.0", most: "2.0", doc: "1.0",
	},
	{
		table: "model.defaults", key: "top_p",
		at:  func(c *Config) any { return &c.Model.Defaults.TopP },
		def: `"auto"`, least: "0.0", most: "1.0", doc: "1.0",
	},
	{
		table: "model.defaults", key: "top_k",
		at:  func(c *Config) any { return &c.Model.Defaults.TopK },
		def: `"auto"`, least: "0", most: "1000000", doc: "0 = off",
	},
	{
		table: "model.defaults", key: "min_p",
		at:  func(c *Config) any { return &c.Model.Defaults.MinP },
		def: `"auto"`, least: "0.0", most: "1.0", doc: "0.0 = off",
	},
	{
		table: "model.defaults", key: "max_tokens",
		at:  func(c *Config) any { return &c.Model.Defaults.MaxTokens },
		def: `"auto"`, least: "1", most: "16777216", doc: "tokens; what is left of max_model_len",
	},
	{
		table: "model.defaults", key: "seed",
		at:  func(c *Config) any { return &c.Model.Defaults.Seed },
		def: `"auto"`, doc: "random for each request, written to its log line",
	},
	{
		table: "backend", key: "kind", at: func(c *Config) any { return &c.Backend.Kind },
		def: `"cpu"`, enum: []string{"cpu", "cuda"},
		alias: map[string]string{"gpu": "cuda", "nvidia": "cuda"},
		doc:   "cpu | cuda (NVIDIA GPUs; a binary of `make cuda`)",
	},
	{
		table: "backend", key: "device", at: func(c *Config) any { return &c.Backend.Device },
		def: `0`, least: "0", most: "63",
		doc: "which GPU of this machine, as its driver counts them; 0 with cpu",
	},
	{
		table: "backend", key: "threads", at: func(c *Config) any { return &c.Backend.Threads },
		def: `"auto"`, least: "1", most: "1024",
		foreign: []string{"n_threads", "num_threads"},
		doc: "worker threads; auto = the cores this process may use (cgroup quota and " +
			"affinity)",
	},
	{
		table: "backend", key: "isa", at: func(c *Config) any { return &c.Backend.ISA },
		def: `"auto"`, enum: []string{"auto", "amx", "avx512", "avxvnni", "avx2", "plain"},
		alias: map[string]string{"go": "plain", "none": "plain", "avx512_vnni": "avx512",
			"avx_vnni": "avxvnni"},
		doc: "instructions of the inner loops: auto = the best this processor has | amx (needs " +
			"numerics = \"tdp\") | avx512 | avxvnni | avx2 | plain; all give the same bits",
	},
	{
		table: "backend", key: "activations",
		at:  func(c *Config) any { return &c.Backend.Activations },
		def: `"int8"`, enum: []string{"int8", "f32", "bf16"},
		alias: map[string]string{"float32": "f32", "fp32": "f32", "i8": "int8", "q8_0": "int8",
			"bfloat16": "bf16"},
		doc: "what activations are rounded to: int8 = 8 bits for quantised weights, in exact dot " +
			"products | f32 = nothing (slower) | bf16 = as int8, and BF16 for weights in BF16 " +
			"(needs numerics = \"fma\"); equal on prefill and decode",
	},
	{
		table: "backend", key: "numerics",
		at:  func(c *Config) any { return &c.Backend.Numerics },
		def: `"fma"`, enum: []string{"fma", "tdp"}, alias: map[string]string{"amx": "tdp"},
		doc: "order of sums with weights that are not quantised: fma | tdp (that of AMX, on any " +
			"processor; slower there); equal on prefill and decode",
	},
	{
		table: "kv_cache", key: "memory", at: func(c *Config) any { return &c.KVCache.Memory },
		def: `"auto"`, least: `"64KiB"`, most: `"64TiB"`,
		doc: "size of the page pool, shared by all requests; auto = max_num_seqs × " +
			"max_model_len, at most:",
	},
	{
		table: "kv_cache", key: "memory_fraction",
		at:  func(c *Config) any { return &c.KVCache.MemoryFraction },
		def: `0.5`, least: "0.05", most: "0.95",
		foreign: []string{"gpu_memory_utilization", "mem_fraction_static"},
		doc: `share of the memory free after loading, when memory = "auto"; ` +
			`0.05 to 0.95`,
	},
	{
		table: "kv_cache", key: "page_size", at: func(c *Config) any { return &c.KVCache.PageSize },
		def: `16`, least: "1", most: "256", powerOfTwo: true, foreign: []string{"block_size"},
		doc: "tokens in a page, a power of two up to 256; equal on prefill and decode " +
			"→ page_tokens",
		help: "prefill and decode instances must have the same page_size",
	},
	{
		table: "kv_cache", key: "dtype", at: func(c *Config) any { return &c.KVCache.DType },
		def: `"f16"`, enum: []string{"f16", "f32", "bf16", "q8_0"}, alias: dtypeAlias,
		foreign: []string{"kv_cache_dtype", "cache_type_k", "cache_type_v"},
		doc: "keys and values in pages: f16 | f32 | bf16 | q8_0 (8 bits, heads of a multiple " +
			"of 32); equal on prefill and decode",
	},
	{
		table: "kv_cache", key: "prefix_cache",
		at:  func(c *Config) any { return &c.KVCache.PrefixCache },
		def: `true`, foreign: []string{"enable_prefix_caching"},
		doc: "match prompts against pages already computed",
	},
	{
		table: "kv_cache", key: "prefix_memory",
		at:  func(c *Config) any { return &c.KVCache.PrefixMemory },
		def: `"auto"`, least: `"0B"`, most: `"64TiB"`,
		doc: "size that unreferenced cached pages may hold (LRU); auto = whatever is free",
	},
}

// dtypeAlias are other spellings of the number formats.
var dtypeAlias = map[string]string{
	"float32": "f32", "fp32": "f32", "float": "f32", "float16": "f16", "fp16": "f16",
	"half": "f16", "bfloat16": "bf16", "q8": "q8_0", "int8": "q8_0",
}
