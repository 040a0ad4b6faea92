//go:build unix

package localstack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// postgresBinEnv names the folder of the programs to use; then no other is looked into.
const postgresBinEnv = "ONCEQ_POSTGRES_BIN"

// postgresDirs are where packages put the programs, outside PATH.
var postgresDirs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian
	"/usr/pgsql-*/bin",                                   // PostgreSQL's own RPMs
	"/usr/libexec/postgresql*",                           // Alpine
	"/usr/local/pgsql/bin",                               // built from source
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

// startPostgres makes a cluster in the site's folder and runs a server on it, on the loopback address.
func startPostgres(ctx context.Context, s *site) (string, error) {
	bin, err := postgresBin()
	if err != nil {
		return "", err
	}
	// Making a database writes 300 files: 20 ms in memory, 300 ms on a slow disk.
	var memory uint64 = 1 << 30
	if s.variant == durable {
		memory = 0
	}
	dir, err := s.scratch(memory)
	if err != nil {
		return "", err
	}
	c := cluster{bin: bin, dir: dir, password: rand.Text()}
	if err := c.asWhom(); err != nil {
		return "", err
	}
	if err := c.init(ctx); err != nil {
		return "", err
	}
	// another process may take the port between our look and the server's
	for try := 1; ; try++ {
		addr, err := c.serve(ctx, s)
		if err == nil || try == 3 || ctx.Err() != nil {
			return addr, err
		}
	}
}

// postgresBin finds the folder of initdb and postgres: PATH's, else the newest.
func postgresBin() (string, error) {
	complete := func(dir string) bool {
		for _, name := range []string{"initdb", "postgres"} {
			if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
				return false
			}
		}
		return true
	}
	if dir := os.Getenv(postgresBinEnv); dir != "" {
		if !filepath.IsAbs(dir) || !complete(dir) {
			return "", fmt.Errorf("%s=%s: no absolute path of a folder with initdb and postgres", postgresBinEnv, dir)
		}
		return dir, nil
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && complete(dir) {
			return dir, nil
		}
	}
	var dirs []string
	for _, pattern := range postgresDirs {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		dirs = append(dirs, names...)
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !complete(dir) })
	if len(dirs) == 0 {
		return "", errors.New("no initdb and postgres in PATH or where packages put them")
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return cmp.Compare(majorIn(a), majorIn(b)) }), nil
}

// A cluster is a throwaway data directory and what is needed to run a server on it.
type cluster struct {
	bin, dir, password string
	// who is set when we are root: the server refuses to run as root.
	who *syscall.Credential
}

func (c *cluster) asWhom() error {
	if os.Geteuid() != 0 {
		return nil
	}
	// the account that packages make for it, else the one that owns nothing
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return err
		}
		c.who = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(c.dir, int(uid), int(gid))
	}
	return errors.New("the server does not run as root, and there is no account postgres or nobody")
}

// command is one of the server's programs, with an environment that says nothing about other servers.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + c.bin + ":/usr/bin:/bin", "HOME=" + c.dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.who}
	return cmd
}

func (c *cluster) init(ctx context.Context) error {
	out, err := c.command(ctx, "postgres", "--version").Output()
	if err != nil {
		return fmt.Errorf("%s/postgres --version: %w", c.bin, err)
	}
	// The password keeps other users of the machine out, and must not cost every connection milliseconds of hashing.
	login := []string{"-A", "md5"}
	if majorIn(string(out)) >= 16 {
		login = []string{"-A", "scram-sha-256", "-c", "scram_iterations=1"}
	}
	file := filepath.Join(c.dir, "password")
	if err := os.WriteFile(file, []byte(c.password), 0o600); err != nil {
		return err
	}
	if c.who != nil {
		if err := os.Chown(file, int(c.who.Uid), int(c.who.Gid)); err != nil {
			return err
		}
	}
	args := append(login, "-D", c.data(), "-U", "postgres", "--pwfile", file, "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := c.command(ctx, "initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// serve starts a server on a free port and waits until it answers.
func (c *cluster) serve(ctx context.Context, s *site) (string, error) {
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	settings := append(postgresSettings(s.variant), "listen_addresses=127.0.0.1", "port="+port, "unix_socket_directories=")
	args := []string{"-D", c.data()}
	for _, set := range settings {
		args = append(args, "-c", set)
	}
	// SIGQUIT ends it without a checkpoint: what it would write is thrown away
	url, _, err := s.serve(ctx, c.command(context.WithoutCancel(ctx), "postgres", args...), syscall.SIGQUIT, func(ctx context.Context) (string, error) {
		return answering(ctx, []string{postgresURL(c.password, "127.0.0.1:"+port)}, time.Minute)
	})
	return url, err
}

// freePort returns a port that nobody listens on now.
func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
