package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// hasRoom says before a model is read whether there is a place for the file.
func (o *quantizeOptions) hasRoom() error {
	folder := filepath.Dir(o.out)
	at, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: there is no folder %s", o.out, folder)
	case err != nil:
		return fmt.Errorf("write %s: %w", o.out, err)
	case !at.IsDir():
		return fmt.Errorf("write %s: %s is no folder", o.out, folder)
	}
	switch there, err := os.Lstat(o.out); {
	case err == nil && there.IsDir():
		return fmt.Errorf("%s is a folder; name a file", o.out)
	case err == nil && !o.force:
		return fmt.Errorf("%s is there already; --force replaces it", o.out)
	}
	return nil
}

// bare is an error without the name of the file that is written to first, which nobody knows.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
