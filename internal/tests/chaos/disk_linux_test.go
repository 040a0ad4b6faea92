package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// disk is a small one, which can be full.
type disk struct{ dir string }

// newDisk mounts one of so many bytes at a folder. Where the user may not do that, it says so.
func newDisk(t *testing.T, dir, size string) (*disk, error) {
	t.Helper()
	d := &disk{dir}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size="+size+",mode=0755"); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d, nil
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill writes until nothing more can be, and answers how many bytes it could.
func (d *disk) fill() (n int, err error) {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for piece := make([]byte, 64<<10); len(piece) > 0; {
		k, err := f.Write(piece)
		n += k
		switch {
		case errors.Is(err, syscall.ENOSPC):
			piece = piece[:len(piece)/2]
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

func (d *disk) free() error { return os.Remove(d.filler()) }

// TestDisk: a disk that is full takes nothing more, until it is freed.
func TestDisk(t *testing.T) {
	d, err := newDisk(t, t.TempDir(), "1m")
	if err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	if n, err := d.fill(); err != nil || n < 512<<10 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	file := filepath.Join(d.dir, "file")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk has taken a file: %v", err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Error(err)
	}
}
