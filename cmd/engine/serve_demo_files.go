package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvrelay/engine/host/config"
)

// demoMark begins the files of a demonstration, which the next one may overwrite.
const demoMark = "# Written by engine serve --demo-pd, which overwrites it.\n"

// writeDemo writes the three TOML files and notes their names in the nodes. It overwrites none of
// anybody else's, and none of a demonstration that still runs.
func writeDemo(folder, model string, nodes []*demoNode) error {
	for _, n := range nodes {
		if conn, err := net.Dial("unix", filepath.Join(folder, n.name+".sock")); err == nil {
			conn.Close()
			return fmt.Errorf("a demonstration runs in %s: stop it, or choose another --out",
				folder)
		}
	}
	for _, n := range nodes {
		n.file = filepath.Join(folder, string(n.role)+".toml")
		old, err := os.ReadFile(n.file)
		if err == nil && !strings.HasPrefix(string(old), demoMark) {
			return fmt.Errorf("%s is there and not of a demonstration: choose another --out",
				n.file)
		}
		text := demoMark + demoFile(folder, model, n, nodes)
		if err := os.WriteFile(n.file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the demonstration's files: %w", err)
		}
	}
	return nil
}

// demoModel is --model as the files can name it, from whatever folder: ORG/NAME stays, a path
// becomes absolute. A model that is not there is an error.
func demoModel(model string) (string, error) {
	at, err := findModel(model, ".")
	if err != nil || model == "" || at.path != model {
		return model, err
	}
	path, err := filepath.Abs(model)
	if err != nil {
		return "", fmt.Errorf("--model: %w", err)
	}
	return path, nil
}

// demoFile is the configuration of one process.
func demoFile(folder, model string, n *demoNode, nodes []*demoNode) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("version = 1")
	line("[node]\nrole = %q\nname = %q", n.role, n.name)
	line("[listen]\nadmin = %q", "unix:"+filepath.Join(folder, n.name+".sock"))
	if n.role == config.RoleRouter {
		line("api      = %q\ninternal = \"\"", n.address)
		for _, other := range nodes[:2] {
			line("[[router.%s]]\nname = %q\nurl  = %q", other.role, other.name,
				"http://"+other.address)
		}
		return b.String()
	}
	line("api      = \"\"                  # /live, /ready, /metrics are on internal too")
	line("internal = %q", n.address)
	if model != "" {
		line("[model]\npath = %q", model)
	}
	return b.String()
}
