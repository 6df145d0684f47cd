// Package config turns one TOML file into a checked Config. It owns the table of keys (table.go):
// one row a key, from which the parser, the defaults, `config init`, `config show`, reload
// decisions and every suggestion come. It knows nothing of the packages it configures; only
// cmd/engine imports it.
//
// What always holds:
//
//  1. A Config that Load returns has passed every check; a file with one error gives none.
//  2. Every problem of a file is reported in one run, in the order of the file, with line, column
//     and what to write instead. A syntax error is reported alone.
//  3. An unknown key or table is an error, never ignored; a key exists only with its feature.
//  4. An unset key has its default; an empty file, and no file, is valid.
package config

import (
	"time"
)

// Config is one instance's settings, field by field as in the file. Paths are absolute or relative
// to the working directory: Load has already joined them to the file's folder.
type Config struct {
	Node      Node
	Listen    Listen
	Model     Model
	Backend   Backend
	KVCache   KVCache
	Scheduler Scheduler
	Policy    Policy
	Policies  []PolicyModule // in the order of the file
	Tenants   []Tenant       // in the order of the file
	Class     Classes
	Transfer  Transfer
	Router    Router
	API       API
	Auth      Auth
	Limits    Limits
	Telemetry Telemetry
	Shutdown  Shutdown
	Keys      []Key // of Auth.KeysFile, when keys are asked for

	file *file // where it came from; nil for Default()
}

// Role is what an instance does.
type Role string

// The roles.
const (
	RoleAll     Role = "all"
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleRouter  Role = "router"
)

// Node is [node]. NodeName, StateDir and CacheDir resolve what is "auto".
type Node struct {
	Role     Role
	Name     Auto[string]
	StateDir Auto[string]
	CacheDir Auto[string]
}

// Listen is [listen]: addresses are host:port or "unix:PATH"; "" is not opened. AdminAddress
// resolves Admin.
type Listen struct {
	API      string
	Admin    Auto[string]
	Internal string
}

// Model is [model].
type Model struct {
	Path           string   // Hugging Face folder, GGUF file, or ORG/NAME; "" is the embedded model
	ServedNames    []string // the first is canonical; empty: the folder's name
	Additional     []string // like Path: models that run over the same tokens
	MaxModelLen    Auto[int]
	DType          string // auto, f32, f16, bf16
	AttentionSinks int
	ChatTemplate   Auto[string] // path of a template file
	ToolParser     string       // auto, none, llama3, qwen, mistral
	Defaults       ModelDefaults
}

// ModelDefaults is [model.defaults]: what a request that leaves the field out gets. Auto is the
// model's generation_config.json, else the number in the key's comment.
type ModelDefaults struct {
	Temperature Auto[float64]
	TopP        Auto[float64]
	TopK        Auto[int]
	MinP        Auto[float64]
	MaxTokens   Auto[int]
	Seed        Auto[int64]
}

// Backend is [backend].
type Backend struct {
	Kind        string // cpu, cuda
	Device      int    // of cuda
	Threads     Auto[int]
	ISA         string // auto, amx, avx512, avxvnni, avx2, plain
	Activations string // int8, f32, bf16
	Numerics    string // fma, tdp
}

// KVCache is [kv_cache].
type KVCache struct {
	Memory         Auto[Size]
	MemoryFraction float64
	PageSize       int    // tokens
	DType          string // f16, f32, bf16, q8_0
	PrefixCache    bool
	PrefixMemory   Auto[Size]
}

// Scheduler is [scheduler].
type Scheduler struct {
	MaxNumSeqs    int
	TokenBudget   int
	ChunkMax      Auto[int]
	ChunkAlign    int
	MaxAdmit      Auto[int]
	MaxPreempt    int
	ReservePages  int
	MaxQueue      int
	HardAge       time.Duration
	QueueTimeout  time.Duration
	Stall         time.Duration
	MaxIdleSteps  int
	MaxEmptySteps int
}

// Policy is [policy] and its tables.
type Policy struct {
	Active  string // builtin:NAME, or the Name of a PolicyModule
	Select  string // likewise, with Chunk and instead of Active; "" with Active
	Chunk   string
	OnFault string
	Keep    int
	Seed    int64
	Limits  PolicyLimits
	Breaker PolicyBreaker
}

// PolicyBreaker is [policy.breaker].
type PolicyBreaker struct {
	Faults     int
	Window     time.Duration
	Backoff    time.Duration
	BackoffMax time.Duration
	CleanSteps int
}

// PolicyLimits is [policy.limits].
type PolicyLimits struct {
	Fuel     Auto[int64]
	InitFuel int64
	Memory   Size
	Slow     time.Duration
	LogLines int
}

// PolicyModule is one [policies.NAME].
type PolicyModule struct {
	Name   string
	Path   string
	SHA256 string // 64 hex digits in lower case; "" is not pinned
	Config []byte // JSON for pol_init; nil when the file gives none

	// Score and Chunk are expressions that stand in place of a module; then Path is "".
	Score string
	Chunk string
}

// Transfer is [transfer].
type Transfer struct {
	Transports  []string
	Peers       []string // networks (CIDR) or host names that may be dialled
	Advertise   Auto[string]
	Timeout     time.Duration
	MaxRate     Rate
	MaxInflight int
	Lease       time.Duration
	OnFailure   string // recompute, error
}

// Router is [router] with its lists of instances.
type Router struct {
	Strategy        string
	PDBalance       Auto[float64]
	MinRemoteTokens int
	Retries         int
	ConnectTimeout  time.Duration
	HealthInterval  time.Duration
	Prefill         []Instance
	Decode          []Instance
}

// Instance is one [[router.prefill]] or [[router.decode]].
type Instance struct {
	Name string
	URL  string // its listen.internal, http://host:port
}

// API is [api].
type API struct {
	RequestTimeout time.Duration
	WriteTimeout   time.Duration
	SSEKeepalive   time.Duration // 0 is off
	MaxBody        Size
	MaxConnections int
	MaxHeader      Size
	MaxN           int
	MaxStop        int
	UI             bool
	CORS           CORS
	TLS            TLS
}

// CORS is [api.cors].
type CORS struct {
	AllowOrigins []string // empty: the same origin only
}

// TLS is [api.tls]: both paths, or neither.
type TLS struct {
	CertFile, KeyFile string
}

// Auth is [auth].
type Auth struct {
	Mode          string // none, api_keys
	KeysFile      string
	OpenToNetwork bool
}

// The ways to be let in.
const (
	AuthNone = "none"
	AuthKeys = "api_keys"
)

// Limits is [limits], for each key, or each address without keys; 0 is unlimited.
type Limits struct {
	RequestsPerMinute  int
	TokensPerMinute    int
	ConcurrentRequests int
}

// Telemetry is [telemetry].
type Telemetry struct {
	LogLevel   string // debug, info, warn, error
	LogFormat  string // auto, text, json
	LogPrompts bool
	// TraceEvents are kept for `engine trace`; 0 is off.
	TraceEvents int
	OTLP        string // address of a collector; "" is off
}

// Shutdown is [shutdown].
type Shutdown struct {
	DrainTimeout time.Duration // 0: nobody is waited for
	ReadyDelay   time.Duration
}
