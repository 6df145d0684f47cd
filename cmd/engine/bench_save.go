package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/kvrelay/engine/host/bench"
)

// canMake says before a measurement whether its file can be written after it. What is there stays
// as it is; "" is no file.
func canMake(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s %s is a folder; name a file", flag, path)
	case err == nil && !info.Mode().IsRegular():
		return nil // Opening a pipe would wait for its reader.
	}
	absent := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("%s: nothing was measured, for its result cannot be saved: %w", flag, err)
	}
	err = file.Close()
	if absent {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// save writes what was asked for of a result.
func (o *benchOptions) save(result *bench.Result, out io.Writer) error {
	if o.json != "" {
		if err := result.Save(o.json); err != nil {
			return fmt.Errorf("save the result: %w", err)
		}
		fmt.Fprintf(out, "saved %s · compare: engine bench compare %s AFTER.json\n",
			o.json, o.json)
	}
	if o.page == "" {
		return nil
	}
	page, err := os.Create(o.page)
	if err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	if err := result.WritePage(page); err != nil {
		page.Close()
		return fmt.Errorf("save the page: %w", err)
	}
	return page.Close()
}
