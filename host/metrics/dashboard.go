package metrics

import _ "embed"

//go:embed grafana.json
var dashboard []byte

// Dashboard is a Grafana dashboard over these series, as JSON.
func Dashboard() []byte { return dashboard }
