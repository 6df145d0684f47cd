package main

import (
	"crypto/tls"
	"time"

	"github.com/kvrelay/engine/host/access"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/config"
)

// accessRules are who may enter, as the configuration says.
func accessRules(cfg *config.Config) access.Rules {
	l := cfg.Limits
	rules := access.Rules{Required: cfg.Auth.Mode == config.AuthKeys, Limits: access.Limits{
		RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
		Concurrent: l.ConcurrentRequests}}
	for _, k := range cfg.Keys {
		rules.Keys = append(rules.Keys, access.Key{Name: k.Name, Hash: k.Hash, Tenant: k.Tenant,
			Models: k.Models, Limits: access.Limits{
				RequestsPerMinute: k.RequestsPerMinute.Or(l.RequestsPerMinute),
				TokensPerMinute:   k.TokensPerMinute.Or(l.TokensPerMinute),
				Concurrent:        k.ConcurrentRequests.Or(l.ConcurrentRequests),
			}})
	}
	return rules
}

// openAPI serves the applications' listener, behind its certificate if there is one.
func (i *instance) openAPI(server *api.Server) error {
	return i.servers.open(i.cfg.Listen.API, i.secured, server,
		access.Origins(i.cfg.API.CORS.AllowOrigins, server.API()))
}

// certificate is what [api.tls] names, nil for plain HTTP. A wrong one is shown at its place.
func (i *instance) certificate() (*tls.Config, error) {
	files := i.cfg.API.TLS
	if files.CertFile == "" || i.cfg.Listen.API == "" {
		return nil, nil
	}
	c, err := access.OpenCertificate(files.CertFile, files.KeyFile, time.Now, i.log)
	if err != nil {
		return nil, badConfig{badCertificate(i.cfg, err)}
	}
	return c.Config(), nil
}

// badCertificate says where a certificate that cannot be used is named.
func badCertificate(cfg *config.Config, err error) config.Problem {
	wrong := cfg.At("api.tls.cert_file")
	wrong.Code, wrong.Message, wrong.Label = "E421", "this certificate cannot be used", err.Error()
	wrong.Help = []string{"both files are PEM; the key must be the one of the first certificate"}
	return wrong
}
