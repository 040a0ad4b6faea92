//go:build unix

package localstack

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onceq/onceq/internal/testserver"
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
			why = append(why, testserver.OneLine(err))
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

// virtualEnv returns the folder of a virtual environment with what the lock file lists. Cached tells that it was there; with
// again it is made anew.
func (s *site) virtualEnv(ctx context.Context, p python, what requirements, again bool) (dir string, cached bool, err error) {
	return s.cached(ctx, envName(p, what), again, func(dir string) error { return install(ctx, p, dir, s.dir, *what.lock) })
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
