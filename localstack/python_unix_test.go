//go:build unix

package localstack

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

// wheel writes a package for pip, and returns a lock file for it.
func wheel(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "onceqtest-1.0-py3-none-any.whl")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for file, text := range map[string]string{
		"onceqtest.py":                          "answer = 42\n",
		"onceqtest-1.0.dist-info/METADATA":      "Metadata-Version: 2.1\nName: onceqtest\nVersion: 1.0\n",
		"onceqtest-1.0.dist-info/WHEEL":         "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"onceqtest-1.0.dist-info/RECORD":        "onceqtest.py,,\nonceqtest-1.0.dist-info/METADATA,,\nonceqtest-1.0.dist-info/WHEEL,,\nonceqtest-1.0.dist-info/RECORD,,\n",
		"onceqtest-1.0.dist-info/top_level.txt": "onceqtest\n",
	} {
		w, err := z.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	data := must.Get(os.ReadFile(name))
	return fmt.Sprintf("onceqtest==1.0 --hash=sha256:%x\n", sha256.Sum256(data))
}

func TestVirtualEnv(t *testing.T) {
	p, _, err := findPython(t.Context(), localStacks)
	if err != nil {
		t.Skip(err)
	}
	cache, wheels := t.TempDir(), t.TempDir()
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheels)
	t.Setenv("PIP_USER", "1") // a setting of somebody's that would lead elsewhere
	good := wheel(t, wheels)
	s := &site{dir: t.TempDir()}
	get := func(lock string, again bool) (string, bool, error) {
		return s.virtualEnv(t.Context(), p, requirements{name: "test", lock: &lock}, again)
	}
	works := func(dir string) error {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "python"), "-I", "-c", "import onceqtest; print(onceqtest.answer)").Output()
		if err == nil && strings.TrimSpace(string(out)) != "42" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	}
	// a lock file that would let in anything
	bare, _, _ := strings.Cut(good, " ")
	if dir, _, err := get(bare+"\n", false); err == nil || !strings.Contains(err.Error(), "pip install: ") {
		t.Errorf("a lock file without hashes: %s, %v", dir, err)
	}
	if left := folders(t, cache); len(left) > 0 {
		t.Errorf("a failed installation has left %v", left)
	}
	dir, cached, err := get(good, false)
	if err != nil || cached || works(dir) != nil {
		t.Fatalf("the first time: cached %v, %v, %v", cached, err, works(dir))
	}
	// what a killed one would leave
	if err := os.Mkdir(dir+".new123", 0o700); err != nil {
		t.Fatal(err)
	}
	if same, cached, err := get(good, false); same != dir || !cached || err != nil {
		t.Errorf("the second time: %s, cached %v, %v", same, cached, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if same, cached, err := get(good, true); same != dir || cached || err != nil || works(dir) != nil {
		t.Errorf("again: %s, cached %v, %v, %v", same, cached, err, works(dir))
	}
	if left := folders(t, cache); len(left) != 1 {
		t.Errorf("the cache has %v, want one environment", left)
	}
	// another lock file or Python is another environment
	later, other := "# later\n"+good, p
	other.Full += "+"
	a, b, c := envName(p, requirements{name: "test", lock: &good}), envName(p, requirements{name: "test", lock: &later}),
		envName(other, requirements{name: "test", lock: &good})
	if a == b || a == c || a != filepath.Base(dir) {
		t.Errorf("environments of different things are %s, %s and %s", a, b, c)
	}
}

// folders are those in the harness's part of the cache.
func folders(t *testing.T, cache string) (names []string) {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	more, err2 := filepath.Glob(filepath.Join(cache, "Library", "Caches", "onceq", "*"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, e := range append(entries, more...) {
		if info, err := os.Stat(e); err == nil && info.IsDir() && strings.HasPrefix(filepath.Base(e), "test-") {
			names = append(names, e)
		}
	}
	return names
}

// TestLockFile: one at a time, and who waits gives up with its context.
func TestLockFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = lockFile(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

// TestToolEnds: a program and its children end with the context, so that a run that is interrupted
// does not wait for pip.
func TestToolEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := tool(ctx, "", "/bin/sh", "-c", "sleep 60 & wait")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
