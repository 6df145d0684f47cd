package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of what the hub says of a model.
const (
	maxListing = 64 << 20 // bytes
	maxFiles   = 100_000
	maxSize    = 1 << 44 // bytes of one file
)

// answer is the hub's description of one commit. Only with blobs=true do the files have sizes and
// hashes, and some hubs have none even then.
type answer struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Name string `json:"rfilename"`
		Size *int64 `json:"size"`
		Blob string `json:"blobId"` // the name that git gives the bytes
		LFS  *struct {
			SHA256 string `json:"sha256"`
			Size   *int64 `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// list asks which files a model has. A file of unknown size has size -1, one of unknown hash "".
func (c *Client) list(ctx context.Context, ref Ref, say func(string)) (*listing, error) {
	address := c.settings.Endpoint + "/api/models/" + ref.Model() + "/revision/" +
		url.PathEscape(ref.revision()) + "?blobs=true"
	var found *listing
	err := c.persist(ctx, say, func() (bool, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, c.stall, errStalled)
		defer cancel()
		response, err := c.ask(ctx, query{method: http.MethodGet, url: address})
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		data, err := io.ReadAll(io.LimitReader(response.Body, maxListing+1))
		if err != nil {
			return false, networkError(ctx, response.Request.URL.Host, err)
		}
		found, err = parseListing(data)
		if err != nil {
			err = fmt.Errorf("%s does not answer as a hub does: %w", response.Request.URL.Host, err)
		}
		return false, err
	})
	if r, ok := errors.AsType[*refusal](err); ok {
		return nil, c.explain(r, ref, "")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return found, nil
}

// parseListing reads the hub's answer. Files whose names would leave a folder are left out: nobody
// can ask for them.
func parseListing(data []byte) (*listing, error) {
	if len(data) > maxListing {
		return nil, fmt.Errorf("its list of files has more than %d bytes", maxListing)
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, err
	}
	if !isCommit(a.SHA) {
		return nil, errors.New("it names no commit")
	}
	if len(a.Siblings) > maxFiles {
		return nil, fmt.Errorf("it lists more than %d files", maxFiles)
	}
	l := &listing{commit: a.SHA, files: map[string]File{}}
	for _, s := range a.Siblings {
		if checkFileName(s.Name) != nil {
			continue
		}
		f := File{Name: s.Name, Size: -1}
		size, hash := s.Size, s.Blob
		if s.LFS != nil {
			hash = s.LFS.SHA256
			if s.LFS.Size != nil {
				size = s.LFS.Size
			}
		}
		if size != nil && *size >= 0 && *size <= maxSize {
			f.Size = *size
		}
		if isHash(hash, 40) || isHash(hash, 64) {
			f.hash = hash
		}
		l.files[s.Name] = f
	}
	return l, nil
}

// address is where a file's bytes are. It names the commit, so that a model that changes meanwhile
// does not mix.
func (c *Client) address(ref Ref, commit, name string) string {
	var escaped []string
	for part := range strings.SplitSeq(name, "/") {
		escaped = append(escaped, url.PathEscape(part))
	}
	return c.settings.Endpoint + "/" + ref.Model() + "/resolve/" + commit + "/" +
		strings.Join(escaped, "/")
}

// complete asks for the size and the hash of a file that the listing left without.
func (c *Client) complete(ctx context.Context, p *pull, f File) (File, error) {
	if f.Size >= 0 && f.hash != "" {
		return f, nil
	}
	err := c.persist(ctx, p.watch.Say, func() (bool, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, c.stall, errStalled)
		defer cancel()
		response, err := c.ask(ctx, query{method: http.MethodHead, stay: true,
			url: c.address(p.ref, p.commit, f.Name)})
		if err != nil {
			return false, err
		}
		response.Body.Close()
		return false, f.describe(response)
	})
	if r, ok := errors.AsType[*refusal](err); ok {
		return f, c.explain(r, p.ref, f.Name)
	}
	if err != nil {
		return f, fmt.Errorf("%s, %s: %w", p.ref, f.Name, err)
	}
	return f, nil
}

// describe reads size and hash from the headers of a file.
func (f *File) describe(r *http.Response) error {
	size, hash := r.Header.Get("X-Linked-Size"), r.Header.Get("X-Linked-Etag")
	if size == "" && r.StatusCode/100 == 2 {
		size = r.Header.Get("Content-Length")
	}
	if hash == "" {
		hash = r.Header.Get("ETag")
	}
	hash = strings.Trim(strings.TrimPrefix(hash, "W/"), `"`)
	n, err := strconv.ParseInt(size, 10, 64)
	switch {
	case err != nil || n < 0 || n > maxSize:
		return errors.New("the hub does not say how large the file is")
	case !isHash(hash, 40) && !isHash(hash, 64):
		return errors.New("the hub does not say what the file's hash is, so it cannot be checked")
	}
	f.Size, f.hash = n, hash
	return nil
}
