//go:build unix

package localstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
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

// pythonEnv names the Python to use; then no other is looked for.
const pythonEnv = "ONCEQ_PYTHON"

// pythons are the programs to look for in PATH.
var pythons = []string{"python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10"}

// requirements are a lock file for pip.
type requirements struct {
	name   string
	python int // the oldest that it is for: 310 is 3.10
	lock   *string
}

// A python is a program that can make a virtual environment.
type python struct {
	// Path is the program behind all links.
	Path string
	// Version is Python's own, 313 is 3.13; Full and Machine tell it from another that cannot share its packages.
	Version       int
	Full, Machine string
	Venv          bool
}

const pythonProbe = `
import importlib.util, json, os, sys, sysconfig
print(json.dumps({"Path": os.path.realpath(sys.executable), "Version": sys.version_info[0]*100 + sys.version_info[1],
	"Full": sys.version, "Machine": sysconfig.get_platform(),
	"Venv": all(importlib.util.find_spec(m) for m in ("venv", "ensurepip"))}))
`

// findPython looks for one, and for the best of what can run on it.
func findPython(ctx context.Context, all []requirements) (best python, what requirements, err error) {
	names, oldest := pythons, slices.MinFunc(all, func(a, b requirements) int { return a.python - b.python }).python
	if name := os.Getenv(pythonEnv); name != "" {
		names = []string{name}
	}
	var why []string
	rank := len(all)
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		var p python
		out, err := tool(ctx, "", path, "-I", "-c", pythonProbe)
		if err == nil {
			err = json.Unmarshal(out, &p)
		}
		switch {
		case err != nil:
			// such as a link of pyenv's to a version that is not chosen
			err = fmt.Errorf("%s does not run: %w", name, err)
		case p.Version < oldest:
			err = fmt.Errorf("%s is %d.%d", name, p.Version/100, p.Version%100)
		case !p.Venv:
			err = fmt.Errorf("%s (%d.%d) has no venv with ensurepip, on Debian python3-venv", name, p.Version/100, p.Version%100)
		}
		if err != nil {
			why = append(why, oneLine(err))
			continue
		}
		for i, w := range all[:rank] {
			if p.Version >= w.python {
				best, what, rank = p, w, i
				break
			}
		}
	}
	if rank < len(all) {
		return best, what, nil
	}
	if len(why) == 0 {
		why = []string{"no " + strings.Join(names, ", ")}
	}
	return best, what, fmt.Errorf("no Python %d.%d or later with venv (%s)", oldest/100, oldest%100, strings.Join(why, "; "))
}

// virtualEnv returns the folder of a virtual environment with what the lock file lists. It is made once and kept in the user's
// cache, under a name that tells Python and lock file; it may be removed whenever no test runs. With again it is made
// anew. Cached tells that it was there.
func (s *site) virtualEnv(ctx context.Context, p python, what requirements, again bool) (dir string, cached bool, err error) {
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "onceq")
		err = os.MkdirAll(cache, 0o700)
	}
	if err != nil {
		cache = s.dir // no home, no cache
	}
	dir = filepath.Join(cache, envName(p, what))
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
	// It gets its name when it is complete. Its programs would notice that it moved; its python does not.
	made, err := os.MkdirTemp(cache, filepath.Base(dir)+".new")
	if err != nil {
		return "", false, err
	}
	if err := install(ctx, p, made, s.dir, *what.lock); err != nil {
		return "", false, errors.Join(err, os.RemoveAll(made))
	}
	return dir, false, os.Rename(made, dir)
}

// envName tells an environment from all that it could be mistaken for.
func envName(p python, what requirements) string {
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", p.Path, p.Full, p.Machine, *what.lock))
	return fmt.Sprintf("%s-py%d-%x", what.name, p.Version, key[:8])
}

// install makes the virtual environment. All that comes from the network is checked against the lock file's hashes,
// and nothing of it runs before that.
func install(ctx context.Context, p python, dir, tmp, lock string) error {
	file := filepath.Join(tmp, "lock.txt")
	if err := os.WriteFile(file, []byte(lock), 0o600); err != nil {
		return err
	}
	if _, err := tool(ctx, tmp, p.Path, "-I", "-m", "venv", dir); err != nil {
		return fmt.Errorf("python -m venv: %w", err)
	}
	// Compiling all of it takes as long as the download; what is used is compiled when it is.
	_, err := tool(ctx, tmp, filepath.Join(dir, "bin", "python"), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--no-compile",
		"--disable-pip-version-check", "--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement", file)
	if err != nil {
		return fmt.Errorf("pip install: %w", err)
	}
	return nil
}

// pipElsewhere are settings that lead pip away from the virtual environment.
var pipElsewhere = []string{"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_NO_BINARY", "PIP_CONSTRAINT", "PIP_REQUIREMENT"}

// tool runs a program to its end, with its temporary files in tmp, and returns what it printed. When ctx ends, the program
// and all that it started are killed.
func tool(ctx context.Context, tmp, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return slices.Contains(pipElsewhere, name)
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

// lockFile waits until this process alone has the file, or ctx ends. A process that ends gives it up, however it ends.
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
