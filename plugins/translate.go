package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"
)

// translate compiles a metered module, or takes it from the cache. Where that fails, for a damaged
// file in the cache or a full disk, it is done once more without the cache: that one can fail must
// not keep an engine from its policy. What is at fault shows in whether the second try succeeds.
func (g *generation) translate(ctx context.Context, c compiler, metered []byte) error {
	if c.dir == "" || c.gone.Load() {
		return g.translateApart(ctx, c, metered)
	}
	failure := g.translateIn(ctx, c, metered)
	if failure == nil || ctx.Err() != nil || errors.Is(failure, errCompileTime) {
		return failure
	}
	g.drop()
	if err := g.translateApart(ctx, c, metered); err != nil {
		return err
	}
	c.mend(g.label, failure)
	return nil
}

// translateIn compiles with one cache; the runtime believes nothing in it that fails its checks.
func (g *generation) translateIn(ctx context.Context, c compiler, metered []byte) error {
	err := c.run(ctx, metered)
	if err != nil {
		return err
	}
	config := wazero.NewRuntimeConfig()
	if g.cache, err = c.open(); err != nil {
		return err
	}
	if g.cache != nil {
		config = config.WithCompilationCache(g.cache)
	}
	return g.compile(ctx, config, metered)
}

// translateApart compiles without the cache. What another process compiles passes through a folder
// that is removed again; where there is room for none, this process compiles.
func (g *generation) translateApart(ctx context.Context, c compiler, metered []byte) error {
	if c.command == nil {
		return g.translateIn(ctx, compiler{}, metered)
	}
	dir, err := os.MkdirTemp("", "engine-policy-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = writable(dir, codeGrowth*len(metered))
	}
	if err != nil {
		c.log.Warn("policy compiled inside the engine: no folder can be written", "policy",
			g.label, "error", err)
		return g.translateIn(ctx, compiler{}, metered)
	}
	return g.translateIn(ctx, compiler{command: c.command, dir: dir}, metered)
}

// codeGrowth is how many times larger than a metered module its machine code is taken to be.
const codeGrowth = 16

// writable writes a file of a size into a folder and removes it.
func writable(dir string, size int) error {
	f, err := os.CreateTemp(dir, "room-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Close())
}

// mend acts on a cache that failed where a compilation without it did not: one that can be written
// is emptied, another one is left alone from now on.
func (c compiler) mend(policy string, failure error) {
	if err := writable(c.dir, 1<<20); err != nil {
		c.gone.Store(true)
		c.log.Warn("the cache of compiled policies cannot be written and is not used any more",
			"folder", c.dir, "policy", policy, "error", err)
		return
	}
	c.log.Warn("the cache of compiled policies failed and is emptied", "folder", c.dir, "policy",
		policy, "error", shorten(failure.Error()))
	folders, err := filepath.Glob(filepath.Join(c.dir, "wazero-*"))
	for _, folder := range folders {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	if err != nil {
		c.gone.Store(true)
		c.log.Warn("the cache of compiled policies could not be emptied and is not used any more",
			"error", fmt.Errorf("emptying %s: %w", c.dir, err))
	}
}
