// Package hub finds models in the folder where the Hugging Face hub's own client keeps them, and
// fetches models into it. Both sides agree on every name in that folder: what the client has
// fetched is found here, and what was fetched here the client finds.
//
//	CACHE/models--ORG--NAME/blobs/HASH           a file's bytes, named by what they are
//	CACHE/models--ORG--NAME/blobs/HASH.incomplete    the beginning of such bytes
//	CACHE/models--ORG--NAME/snapshots/COMMIT/FILE    a link to a blob
//	CACHE/models--ORG--NAME/refs/REVISION        the commit that a branch or tag stood at
//	CACHE/.locks/models--ORG--NAME/HASH.lock     held while the blob is being written
//
// What always holds: bytes get a blob's name only when all of them are there, on the disk, and
// their hash is the one that the hub announced; a revision points to a new commit only when all
// that was asked of it is there. The token goes to the hub's own origin and nowhere else.
package hub

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"
)

// ErrTemporary is wrapped by errors that may be gone on the next try: the network, a hub that is
// busy. What was fetched until then stays, and the next pull goes on from there.
var ErrTemporary = errors.New("try again later")

// Options are what a Client is built from.
type Options struct {
	Settings
	// UserAgent is sent with each request.
	UserAgent string
}

// Client fetches from one hub into one cache.
type Client struct {
	settings  Settings
	userAgent string
	http      *http.Client

	// What tests replace: the wait between two tries, the silence that ends a try, the room on the
	// disk, how bytes are written, links made and locks taken.
	pause func(context.Context, time.Duration) error
	stall time.Duration
	free  func(folder string) (bytes int64, known bool)
	write func(*os.File, []byte) (int, error)
	link  func(blob, name string) error
	take  func(name string) (*held, error)
}

// New returns a client. It asks nothing yet.
func New(o Options) *Client {
	return &Client{
		settings: o.Settings, userAgent: o.UserAgent, http: newHTTP(),
		pause: pause, stall: stallLimit, free: freeSpace, write: (*os.File).Write, link: linkFile,
		take: tryLock,
	}
}

// Watch hears how a pull goes on. Its methods may be called from several goroutines at once.
type Watch interface {
	// Plan is called once it is known what to fetch; present files are here already.
	Plan(fetch []File, present int)
	// Got tells how many bytes of fetch[i] are here. The count can fall: bytes that turn out wrong
	// are thrown away.
	Got(i int, bytes int64)
	// Done tells that fetch[i] is whole and verified.
	Done(i int)
	// Say tells what the pull waits for.
	Say(text string)
}

// File is one file of a model.
type File struct {
	Name string // with slashes
	Size int64  // bytes
	// hash is the SHA-256 of the bytes or, 40 digits long, the name that git gives them.
	hash string
}
