//go:build !unix

package nearby

import "errors"

// HasUnix says whether this system has unix sockets and folders that are private by their mode.
const HasUnix = false

func private(string) error {
	return errors.New("folders of this system are not known to be private by their mode")
}

func refusedBy(error) bool { return false }
