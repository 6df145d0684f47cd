package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// atOnce bounds the files that are fetched side by side.
const atOnce = 4

// margin is the room that is left on the disk.
const margin = 32 << 20

// pull is one model being fetched.
type pull struct {
	ref    Ref
	commit string
	folder string // of the model in the cache
	watch  Watch
}

// Pull fetches what an engine needs of a model and is not here yet: its configuration, tokenizer,
// chat template and safetensors weights; or, with a file's name, that GGUF file alone. The error
// wraps ErrTemporary when a later pull may succeed; it goes on where this one ended.
func (c *Client) Pull(ctx context.Context, ref Ref, gguf string, w Watch) (Snapshot, error) {
	if c.settings.Offline {
		return Snapshot{}, errors.New("HF_HUB_OFFLINE is set: nothing is fetched")
	}
	if gguf != "" && filepath.Ext(gguf) != ".gguf" {
		return Snapshot{}, fmt.Errorf("%s: %w", gguf, errNotGGUF)
	}
	found, err := c.list(ctx, ref, w.Say)
	if err != nil {
		return Snapshot{}, err
	}
	p := &pull{ref: ref, commit: found.commit, watch: w,
		folder: filepath.Join(c.settings.Cache, ref.folder())}
	files, err := c.choose(ctx, p, found, gguf)
	if err != nil {
		return Snapshot{}, err
	}
	if err := c.fetchAll(ctx, p, files); err != nil {
		return Snapshot{}, err
	}
	if err := p.writeRef(); err != nil {
		return Snapshot{}, err
	}
	here := Ref{ref.Org, ref.Name, p.commit}
	return Cache{c.settings.Cache}.Find(here)
}

// choose lists the files to have. Of a model in several shards the index comes first, for it alone
// says which they are.
func (c *Client) choose(ctx context.Context, p *pull, found *listing, gguf string) ([]File, error) {
	if gguf != "" {
		files, err := found.gguf(p.ref, gguf)
		if err != nil {
			return nil, err
		}
		return c.completeAll(ctx, p, files)
	}
	small, err := found.small(p.ref)
	if err != nil {
		return nil, err
	}
	files, err := c.completeAll(ctx, p, small)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Name != indexName {
			continue
		}
		if f.Size > maxIndexSize {
			return nil, fmt.Errorf("%s: %s has %d bytes, more than any index needs", p.ref, f.Name,
				f.Size)
		}
		if err := c.fetch(ctx, p, f, func(int64) {}); err != nil {
			return nil, err
		}
		index, err := readIndex(p.path(f))
		if err != nil {
			return nil, fmt.Errorf("%s: read %s: %w", p.ref, f.Name, err)
		}
		shards, err := found.shards(index)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ref, err)
		}
		if shards, err = c.completeAll(ctx, p, shards); err != nil {
			return nil, err
		}
		return append(files, shards...), nil
	}
	return files, nil
}

func (c *Client) completeAll(ctx context.Context, p *pull, files []File) ([]File, error) {
	var err error
	for i, f := range files {
		if files[i], err = c.complete(ctx, p, f); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// path is where a file of the snapshot is.
func (p *pull) path(f File) string {
	return filepath.Join(p.folder, snapshots, p.commit, filepath.FromSlash(f.Name))
}

// here says whether the snapshot holds the file already. Only whole files ever get there.
func (p *pull) here(f File) bool {
	info, err := os.Stat(p.path(f))
	return err == nil && info.Mode().IsRegular() && info.Size() == f.Size
}

// fetchAll fetches what is not here, some files side by side. The first failure ends the rest.
func (c *Client) fetchAll(ctx context.Context, p *pull, files []File) error {
	var need []File
	for _, f := range files {
		if !p.here(f) {
			need = append(need, f)
		}
	}
	p.watch.Plan(need, len(files)-len(need))
	if err := c.checkRoom(p, need); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(need)) {
		workers.Go(func() {
			for i := range queue {
				if ctx.Err() != nil {
					continue
				}
				err := c.fetch(ctx, p, need[i], func(bytes int64) { p.watch.Got(i, bytes) })
				if err != nil {
					cancel(err)
					continue
				}
				p.watch.Done(i)
			}
		})
	}
	for i := range need {
		queue <- i
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// checkRoom refuses a pull that the disk cannot hold, before the first byte of it.
func (c *Client) checkRoom(p *pull, need []File) error {
	var bytes int64
	for _, f := range need {
		left := f.Size
		if info, err := os.Stat(p.blob(f)); err == nil && info.Size() == f.Size {
			left = 0
		} else if info, err := os.Stat(p.blob(f) + incomplete); err == nil {
			left = max(0, f.Size-info.Size())
		}
		bytes += left
	}
	if bytes == 0 {
		return nil
	}
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return fmt.Errorf("make the model's folder: %w", err)
	}
	free, known := c.free(p.folder)
	if known && free < bytes+margin {
		return fmt.Errorf("%s needs %s in %s, where %s are free: make room, or set HF_HUB_CACHE "+
			"to a folder on another disk", p.ref, inGiB(bytes), c.settings.Cache, inGiB(free))
	}
	return nil
}

func inGiB(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// writeRef notes that the revision stands at the commit, now that all of it is here. It replaces
// the file at once, so that a reader sees the old commit or the new one.
func (p *pull) writeRef() error {
	revision := p.ref.revision()
	if revision == p.commit {
		return nil
	}
	path := filepath.Join(p.folder, refsName, filepath.FromSlash(revision))
	if commit, err := readRef(path); err == nil && commit == p.commit {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = replaceFile(path, p.commit)
	}
	if err != nil {
		return fmt.Errorf("note the commit of %s: %w", p.ref, err)
	}
	return nil
}

// replaceFile writes a small file beside path and renames it.
func replaceFile(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // It may have been renamed.
	}
	return err
}

// read is a query for the rest of a file.
func (c *Client) read(p *pull, f File, from int64) query {
	return query{method: http.MethodGet, url: c.address(p.ref, p.commit, f.Name), from: from}
}
