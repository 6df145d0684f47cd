package hub

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// chunkSize is what is read and written at once.
const chunkSize = 256 << 10

// part is a file of which the first bytes are here. The hash runs along, so that at the end nothing
// needs to be read again.
type part struct {
	file  File
	disk  *os.File
	bytes int64
	sum   hash.Hash
	got   func(int64)
	write func(*os.File, []byte) (int, error)
}

// openPart goes on with what an earlier pull has left, if that can be a beginning of the file.
func openPart(ctx context.Context, name string, f File) (*part, error) {
	disk, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	p := &part{file: f, disk: disk, sum: newSum(f), got: func(int64) {}}
	info, err := disk.Stat()
	if err == nil && info.Size() > f.Size {
		err = p.restart()
	} else if err == nil {
		err = p.catchUp(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return p, nil
}

// catchUp brings the hash to the end of what is here, which takes a while for a large file.
func (p *part) catchUp(ctx context.Context) error {
	buffer := make([]byte, chunkSize)
	for {
		n, err := p.disk.Read(buffer)
		p.sum.Write(buffer[:n])
		p.bytes += int64(n)
		if err == io.EOF {
			return nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// newSum begins the hash by which the hub knows a file: SHA-256 of large ones, and of the others
// the name that git gives to a blob, which is the SHA-1 of a header and the bytes.
func newSum(f File) hash.Hash {
	if len(f.hash) == 2*sha256.Size {
		return sha256.New()
	}
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", f.Size)
	return sum
}

// take writes the next bytes.
func (p *part) take(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	n, err := p.write(p.disk, data)
	p.sum.Write(data[:n])
	p.bytes += int64(n)
	p.got(p.bytes)
	if err != nil {
		return fmt.Errorf("%w; what is there stays, and the next pull goes on from it", err)
	}
	return nil
}

// restart throws away what is here.
func (p *part) restart() error {
	p.bytes, p.sum = 0, newSum(p.file)
	p.got(0)
	if err := p.disk.Truncate(0); err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	if _, err := p.disk.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	return nil
}

// verify says what is wrong with bytes that should be all.
func (p *part) verify() error {
	if p.bytes != p.file.Size {
		return fmt.Errorf("%d bytes came, but the file has %d; they were thrown away", p.bytes,
			p.file.Size)
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != p.file.hash {
		return fmt.Errorf("the bytes that came are not the file: their hash is %s, not %s; they "+
			"were thrown away", got, p.file.hash)
	}
	return nil
}

// keep gives the bytes their final name. They are on the disk by then: a power cut leaves all of
// them under this name, or nothing.
func (p *part) keep(name string) error {
	if err := errors.Join(p.disk.Sync(), p.disk.Close()); err != nil {
		return err
	}
	err := os.Rename(p.disk.Name(), name)
	if info, statErr := os.Stat(name); statErr == nil && info.Size() == p.file.Size {
		return nil // Where locks do not keep others away, one of them may have been faster.
	}
	return err
}

func (p *part) close() { _ = p.disk.Close() } // Closed already, or of no use any more.
