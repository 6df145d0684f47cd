package config

import (
	"fmt"
	"strings"
)

// BeyondLoopback says whether an address to listen on can be reached from other machines.
func BeyondLoopback(address string) bool {
	host, _, ok := splitHostPort(address)
	return ok && !strings.HasPrefix(address, "unix:") && !isLoopback(host)
}

// openAPI refuses an API that asks for no key beyond this machine, unless the file says in words
// that it is meant; then it is a remark.
func (c *checker) openAPI() {
	api := c.config.Listen.API
	host, _, _ := splitHostPort(api)
	if c.bad["listen.api"] || c.bad["auth.mode"] || c.bad["auth.open_to_network"] ||
		!BeyondLoopback(api) || c.config.Auth.Mode == AuthKeys {
		return
	}
	if c.config.Auth.OpenToNetwork {
		c.note("listen.api",
			fmt.Sprintf("%s is reachable from the network and asks for no key", api))
		return
	}
	label := "reachable from the network"
	if isEvery(host) {
		label = "reachable from every interface"
	}
	c.report(c.value("listen.api"), "E307",
		"listen.api is open to the network, and nobody is asked for a key", label,
		`ask for keys: [auth] mode = "api_keys" and keys_file = "keys.toml"`,
		`or listen on this machine only: "127.0.0.1:`+portOf(api)+`"`,
		"or say that it is meant: [auth] open_to_network = true")
}

// keysOrNone wants a key file exactly where keys are asked for.
func (c *checker) keysOrNone() {
	a := c.config.Auth
	if c.bad["auth.mode"] || c.bad["auth.keys_file"] {
		return
	}
	switch {
	case a.Mode == AuthKeys && a.KeysFile == "":
		c.report(c.value("auth.mode"), "E308", "auth.mode asks for keys, but there is no key file",
			"needs auth.keys_file", keysHelp)
	case a.Mode != AuthKeys && a.KeysFile != "":
		c.note("auth.keys_file", `the keys are not asked for: auth.mode is "none"`)
	case a.Mode == AuthKeys && a.OpenToNetwork:
		c.note("auth.open_to_network", "it changes nothing: keys are asked for")
	}
}

// keysHelp says how a key file begins.
const keysHelp = "a key file holds a [[key]] for each, with name and " +
	"hash = \"sha256:HEX\"; HEX is what `printf %s KEY | sha256sum` prints"

// certificate wants both files of [api.tls], or neither.
func (c *checker) certificate() {
	t := c.config.API.TLS
	if (t.CertFile == "") == (t.KeyFile == "") || c.bad["api.tls.cert_file"] ||
		c.bad["api.tls.key_file"] {
		return
	}
	given, missing := "api.tls.cert_file", "api.tls.key_file"
	if t.CertFile == "" {
		given, missing = missing, given
	}
	c.report(c.value(given), "E310", given+" without "+missing, "needs "+missing+" beside it",
		"both are needed for TLS; leave out both for plain HTTP")
}
