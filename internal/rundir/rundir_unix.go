//go:build unix

package rundir

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// alive is a named pipe that the runner holds open for writing: whoever reads it sees its end
// when the runner is gone, however it went.
const alive = "alive"

// Create makes a run's folder inside dir.
func Create(dir string) (Run, error) {
	name, err := os.MkdirTemp(dir, "onceq-run-")
	if err != nil {
		return Run{}, err
	}
	r := Run{name}
	// a server that runs as another user passes through
	err = errors.Join(os.Chmod(name, 0o711), syscall.Mkfifo(r.path(alive), 0o600))
	if err != nil {
		return Run{}, errors.Join(err, os.RemoveAll(name))
	}
	return r, nil
}

// Hold says that the run goes on, until the file is closed or the process ends.
func (r Run) Hold() (*os.File, error) {
	// without a reader, opening for writing would wait
	reader, err := r.Watch()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return os.OpenFile(r.path(alive), os.O_WRONLY, 0)
}

// Watch returns a file to read: its end comes when the run is over.
func (r Run) Watch() (*os.File, error) {
	return os.OpenFile(r.path(alive), os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Lock waits until this process alone may look for a back end.
func (r Run) Lock(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(r.path(name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// Remove waits until what was started in the run has removed its own folder, then removes the
// run's.
func (r Run) Remove(limit time.Duration) error {
	for end := time.Now().Add(limit); ; <-time.After(10 * time.Millisecond) {
		busy, err := r.busy()
		if err != nil {
			return err
		}
		if busy == "" {
			return os.RemoveAll(r.dir)
		}
		if time.Now().After(end) {
			return errors.New("what was started in " + busy + " does not end")
		}
	}
}

// busy returns a folder in the run's folder.
func (r Run) busy() (string, error) {
	entries, err := os.ReadDir(r.dir)
	for _, e := range entries {
		if e.IsDir() {
			return r.path(e.Name()), nil
		}
	}
	return "", err
}
