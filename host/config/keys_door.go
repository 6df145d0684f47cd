package config

// doorKeys say who may enter by the applications' listener, and how often.
var doorKeys = []row{
	{
		table: "api.cors", key: "allow_origins",
		at:  func(c *Config) any { return &c.API.CORS.AllowOrigins },
		def: `[]`, form: originForm, doc: `[] = same origin only; ["*"] = any`,
	},
	{
		table: "api.tls", key: "cert_file", at: func(c *Config) any { return &c.API.TLS.CertFile },
		def: `""`, path: true,
		foreign: []string{"ssl_certfile", "ssl_cert_file", "cert", "certificate"},
		doc:     "PEM, the certificate first, then its chain",
	},
	{
		table: "api.tls", key: "key_file", at: func(c *Config) any { return &c.API.TLS.KeyFile },
		def: `""`, path: true, foreign: []string{"ssl_keyfile", "ssl_key_file", "key"}, doc: "PEM",
	},
	{
		table: "auth", key: "mode", at: func(c *Config) any { return &c.Auth.Mode },
		def: `"none"`, enum: []string{AuthNone, AuthKeys}, reload: true,
		alias: map[string]string{"keys": AuthKeys, "api_key": AuthKeys, "off": AuthNone},
		doc:   "none | api_keys",
	},
	{
		table: "auth", key: "keys_file", at: func(c *Config) any { return &c.Auth.KeysFile },
		def: `""`, path: true, reload: true, foreign: []string{"api_key", "api_keys", "keys"},
		doc: "TOML: one [[key]] each, by its SHA-256",
	},
	{
		table: "auth", key: "open_to_network",
		at:  func(c *Config) any { return &c.Auth.OpenToNetwork },
		def: `false`, reload: true,
		doc: `mode = "none" on a listener beyond loopback is refused unless this is true`,
	},
	{
		table: "limits", key: "requests_per_minute",
		at:  func(c *Config) any { return &c.Limits.RequestsPerMinute },
		def: `0`, least: "0", most: mostPerMinute, reload: true, foreign: []string{"rpm"},
	},
	{
		table: "limits", key: "tokens_per_minute",
		at:  func(c *Config) any { return &c.Limits.TokensPerMinute },
		def: `0`, least: "0", most: mostPerMinute, reload: true, foreign: []string{"tpm"},
		doc: "prompt and output; an estimate at first, what was used in the end",
	},
	{
		table: "limits", key: "concurrent_requests",
		at:  func(c *Config) any { return &c.Limits.ConcurrentRequests },
		def: `0`, least: "0", most: "1000000", reload: true,
	},
}

// mostPerMinute bounds the rates.
const mostPerMinute = "1000000000"

// telemetryKeys say what is told of the work.
var telemetryKeys = []row{
	{
		table: "telemetry", key: "log_level",
		at:  func(c *Config) any { return &c.Telemetry.LogLevel },
		def: `"info"`, enum: []string{"debug", "info", "warn", "error"}, reload: true,
		alias: map[string]string{
			"warning": "warn", "err": "error", "trace": "debug", "fatal": "error",
		},
		doc: "debug | info | warn | error",
	},
	{
		table: "telemetry", key: "log_format",
		at:  func(c *Config) any { return &c.Telemetry.LogFormat },
		def: `"auto"`, enum: []string{"auto", "text", "json"},
		doc: "auto (text on a terminal, else JSON) | text | json",
	},
	{
		table: "telemetry", key: "log_prompts",
		at:  func(c *Config) any { return &c.Telemetry.LogPrompts },
		def: `false`, doc: "prompts and outputs in the log",
	},
	{
		table: "telemetry", key: "trace_events",
		at:  func(c *Config) any { return &c.Telemetry.TraceEvents },
		def: `32768`, least: "0", most: "65536",
		doc: "latest events kept for `engine trace`, about 100 bytes each; 0 = off",
	},
	{
		table: "telemetry", key: "otlp", at: func(c *Config) any { return &c.Telemetry.OTLP },
		def: `""`, form: collectorForm, foreign: []string{"otlp_traces_endpoint", "otlp_endpoint"},
		doc: `collector of spans (OTLP/HTTP, JSON), such as "http://127.0.0.1:4318"; "" = off`,
	},
	{
		table: "shutdown", key: "drain_timeout",
		at:  func(c *Config) any { return &c.Shutdown.DrainTimeout },
		def: `"30s"`, least: `"0s"`, most: `"24h"`,
		doc: "/ready turns 503, streams finish, then exit; a second signal exits now",
	},
	{
		table: "shutdown", key: "ready_delay",
		at:  func(c *Config) any { return &c.Shutdown.ReadyDelay },
		def: `"0s"`, least: `"0s"`, most: `"10m"`,
		doc: "wait between 503 on /ready and refusing requests, for balancers that lag",
	},
}
