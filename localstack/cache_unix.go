//go:build unix

package localstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cached returns a folder of the user's cache that make has filled, under a name that tells all
// that is in it. It is made once, and may be removed whenever no test runs. With again it is made
// anew. Cached tells that it was there.
func (s *site) cached(ctx context.Context, name string, again bool, make func(dir string) error) (dir string, cached bool, err error) {
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "onceq")
		err = os.MkdirAll(cache, 0o700)
	}
	if err != nil {
		cache = s.dir // no home, no cache
	}
	dir = filepath.Join(cache, name)
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	_, err = os.Stat(dir)
	if err == nil && !again {
		return dir, true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	// What a killed one has left, and what no longer works.
	old, err := filepath.Glob(dir + ".new*")
	if err != nil {
		return "", false, err
	}
	for _, o := range append(old, dir) {
		if err := os.RemoveAll(o); err != nil {
			return "", false, err
		}
	}
	// It gets its name when it is complete. The programs of a virtual environment would notice that
	// it moved; its python does not.
	made, err := os.MkdirTemp(cache, name+".new")
	if err != nil {
		return "", false, err
	}
	if err := make(made); err != nil {
		return "", false, errors.Join(err, os.RemoveAll(made))
	}
	return dir, false, os.Rename(made, dir)
}

// serveCached starts a server from what is in the cache, a folder that get returns, made anew where
// it is told so. Serve tells whether the server ended by itself.
func (s *site) serveCached(
	ctx context.Context, get func(again bool) (dir string, cached bool, err error), serve func(dir string) (url string, ended bool, err error),
) (string, error) {
	dir, cached, err := get(false)
	if err != nil {
		return "", err
	}
	url, ended, err := serve(dir)
	if err == nil || !ended || !cached || ctx.Err() != nil {
		return url, err
	}
	// part of it may be gone: it lies where people clean up
	s.close()
	if dir, _, err = get(true); err != nil {
		return "", err
	}
	url, _, err = serve(dir)
	return url, err
}

// elsewhere are settings that lead pip and Maven away from the folder that they are to fill.
var elsewhere = []string{
	"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_NO_BINARY", "PIP_CONSTRAINT", "PIP_REQUIREMENT",
	"MAVEN_ARGS", "MAVEN_BASEDIR", "MAVEN_PROJECTBASEDIR",
}

// tool runs a program to its end, with its temporary files in tmp, and returns what it printed.
// When ctx ends, the program and all that it started are killed.
func tool(ctx context.Context, tmp, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return slices.Contains(elsewhere, name)
	})
	if tmp != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// venv complains on standard output
		text := append(errs.Bytes(), out.Bytes()...)
		return nil, fmt.Errorf("%w: %.400s", err, bytes.TrimSpace(text))
	}
	return out.Bytes(), nil
}

// lockFile waits until this process alone has the file, or ctx ends. A process that ends gives it
// up, however it ends.
func lockFile(ctx context.Context, name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return f.Close, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx)), f.Close())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
