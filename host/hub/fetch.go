package hub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// blob is where a file's bytes are kept, whatever names they have.
func (p *pull) blob(f File) string { return filepath.Join(p.folder, blobsName, f.hash) }

// fetch makes one file be in the snapshot. Whoever else fetches the same bytes waits, and then
// finds them.
func (c *Client) fetch(ctx context.Context, p *pull, f File, got func(int64)) error {
	if p.here(f) {
		return nil
	}
	for _, folder := range []string{filepath.Join(p.folder, blobsName), filepath.Dir(p.path(f))} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("make the model's folder: %w", err)
		}
	}
	held, err := c.lock(ctx, p, f)
	if err != nil {
		return err
	}
	defer held.release()
	if p.here(f) {
		return nil // Whoever held the lock has brought it.
	}
	info, err := os.Stat(p.blob(f))
	fresh := err != nil || info.Size() != f.Size
	if fresh {
		if err := c.fill(ctx, p, f, filling{got: got, alone: held.alone()}); err != nil {
			return c.wordFetch(err, p, f)
		}
	}
	got(f.Size)
	if err := c.place(p, f, fresh); err != nil {
		return fmt.Errorf("put %s into its folder: %w", f.Name, err)
	}
	return nil
}

// wordFetch says which file failed, and what becomes of what is there.
func (c *Client) wordFetch(err error, p *pull, f File) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return c.explain(r, p.ref, f.Name)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%s, %s: %w", p.ref, f.Name, err)
}

// filling is how a blob is being filled.
type filling struct {
	got func(int64)
	// alone is set when a lock keeps others away, so that the beginning of the bytes may be kept
	// from one pull to the next under a name that all agree on.
	alone bool
}

// fill fetches a blob's bytes and gives them the blob's name once they are verified.
func (c *Client) fill(ctx context.Context, p *pull, f File, how filling) error {
	name := p.blob(f) + incomplete
	if !how.alone {
		var b [4]byte
		rand.Read(b[:]) // It never fails.
		name = p.blob(f) + "." + hex.EncodeToString(b[:]) + incomplete
		defer os.Remove(name)
	}
	part, err := openPart(ctx, name, f)
	if err != nil {
		return fmt.Errorf("begin to write: %w", err)
	}
	defer part.close()
	part.got, part.write = how.got, c.write
	part.got(part.bytes)
	resumed := part.bytes > 0
	for {
		if err := c.rest(ctx, p, part); err != nil {
			return err
		}
		wrong := part.verify()
		if wrong == nil {
			break
		}
		if err := part.restart(); err != nil {
			return err
		}
		if !resumed {
			_ = os.Remove(name) // It is empty.
			return wrong
		}
		// What an earlier pull had left was not the beginning of this file.
		resumed = false
		p.watch.Say(fmt.Sprintf("%s: what was here already is damaged; starting over", f.Name))
	}
	if err := part.keep(p.blob(f)); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}

// rest asks for the bytes that are not here yet until all are.
func (c *Client) rest(ctx context.Context, p *pull, part *part) error {
	say := func(text string) { p.watch.Say(part.file.Name + ": " + text) }
	return c.persist(ctx, say, func() (bool, error) {
		if part.bytes >= part.file.Size {
			return false, nil
		}
		before := part.bytes
		err := c.more(ctx, p, part)
		return part.bytes > before, err
	})
}

// more makes one request and takes what it brings.
func (c *Client) more(ctx context.Context, p *pull, part *part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	defer watchdog.Stop()
	response, err := c.ask(ctx, c.read(p, part.file, part.bytes))
	if errors.Is(err, errRange) {
		if err := part.restart(); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := part.align(response); err != nil {
		return err
	}
	watchdog.Reset(c.stall)
	buffer := make([]byte, chunkSize)
	for {
		n, err := response.Body.Read(buffer)
		watchdog.Reset(c.stall)
		if wrote := part.take(buffer[:n]); wrote != nil {
			return wrote
		}
		switch {
		case part.bytes > part.file.Size:
			return nil // More than there should be: the hash will say so.
		case err == io.EOF && part.bytes < part.file.Size:
			return &passing{err: fmt.Errorf("the connection ended after %d of %d bytes", part.bytes,
				part.file.Size)}
		case err == io.EOF:
			return nil
		case err != nil:
			return networkError(ctx, response.Request.URL.Host, err)
		}
	}
}

// align makes the next byte that comes be the next that is written: a server that ignores the range
// sends all from the beginning.
func (p *part) align(r *http.Response) error {
	if r.StatusCode == http.StatusPartialContent {
		want := fmt.Sprintf("bytes %d-", p.bytes)
		if !strings.HasPrefix(r.Header.Get("Content-Range"), want) {
			return &passing{err: errors.New("the hub sends another range than was asked for")}
		}
		return nil
	}
	if p.bytes == 0 {
		return nil
	}
	return p.restart()
}

// place links the snapshot's file to the blob. Where no link can be made, the bytes themselves go
// there, as the hub's client does it: moved when nobody else can know them yet, else copied.
func (c *Client) place(p *pull, f File, fresh bool) error {
	blob, name := p.blob(f), p.path(f)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.link(blob, name) == nil || p.here(f) {
		return nil // Linked, here or by somebody else in this moment.
	}
	if fresh {
		return os.Rename(blob, name)
	}
	return copyFile(blob, name)
}

// linkFile makes name lead to the blob: by a relative link, so that the cache can be moved, or by a
// hard one.
func linkFile(blob, name string) error {
	target, err := filepath.Rel(filepath.Dir(name), blob)
	if err == nil {
		err = os.Symlink(target, name)
	}
	if err != nil {
		return os.Link(blob, name)
	}
	return nil
}

// copyFile copies by way of a name of its own, so that name never holds a part.
func copyFile(from, name string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(name), ".copy.*.tmp")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), name)
	}
	if err != nil {
		_ = os.Remove(out.Name())
	}
	return err
}
