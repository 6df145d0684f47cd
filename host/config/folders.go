package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// NodeName is node.name, or HOST-ROLE with what a name cannot hold replaced by hyphens.
func (c *Config) NodeName() string {
	if c.Node.Name.Set {
		return c.Node.Name.Value
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "engine"
	}
	host, _, _ = strings.Cut(host, ".")
	host = strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '-'
	}, host)
	suffix := "-" + string(c.Node.Role)
	return host[:min(len(host), nameMax-len(suffix))] + suffix
}

// StateDir is node.state_dir, or the user's folder for state.
func (c *Config) StateDir() (string, error) {
	if c.Node.StateDir.Set {
		return c.Node.StateDir.Value, nil
	}
	return StateFolder()
}

// CacheDir is node.cache_dir, or the user's folder for what can be computed again.
func (c *Config) CacheDir() (string, error) {
	if c.Node.CacheDir.Set {
		return c.Node.CacheDir.Value, nil
	}
	return userFolder("CACHE_DIRECTORY", "XDG_CACHE_HOME", ".cache")
}

// AdminAddress is listen.admin, or a socket called after the node in RuntimeFolder.
func (c *Config) AdminAddress() (string, error) {
	if c.Listen.Admin.Set {
		return c.Listen.Admin.Value, nil
	}
	folder, err := RuntimeFolder()
	if err != nil {
		return "", err
	}
	return "unix:" + filepath.Join(folder, c.NodeName()+".sock"), nil
}

// StateFolder is where an engine without a file keeps its state: what systemd gives, else
// $XDG_STATE_HOME/engine, else ~/.local/state/engine.
func StateFolder() (string, error) {
	return userFolder("STATE_DIRECTORY", "XDG_STATE_HOME", filepath.Join(".local", "state"))
}

// RuntimeFolder holds the admin sockets: what systemd gives, else $XDG_RUNTIME_DIR/engine, else
// run/ under the state folder. Whoever makes it gives it mode 0700.
func RuntimeFolder() (string, error) {
	if folder := systemdFolder("RUNTIME_DIRECTORY"); folder != "" {
		return folder, nil
	}
	if base := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		return filepath.Join(base, "engine"), nil
	}
	state, err := StateFolder()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "run"), nil
}

// userFolder is the folder that systemd gives, else engine/ below $xdg or ~/home.
func userFolder(systemd, xdg, home string) (string, error) {
	if folder := systemdFolder(systemd); folder != "" {
		return folder, nil
	}
	if base := os.Getenv(xdg); filepath.IsAbs(base) {
		return filepath.Join(base, "engine"), nil
	}
	base, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home folder: set $" + xdg + " to an absolute path")
	}
	return filepath.Join(base, home, "engine"), nil
}

// systemdFolder is the first of the colon-separated folders that a unit was given.
func systemdFolder(name string) string {
	first, _, _ := strings.Cut(os.Getenv(name), ":")
	return first
}
