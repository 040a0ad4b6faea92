//go:build unix

package localstack

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// This file owns PostgreSQL as a process of this host: it finds the programs, makes a data
// directory and runs a server on it. The back end's start calls startPostgres, in the guard's
// process and in one goroutine, so nothing is locked. guard_unix.go runs and ends the server's
// process.

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

// startPostgres makes a cluster in the site's folder and runs a server on it, on the loopback
// address.
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
	if c.who, err = asWhom(); err != nil {
		return "", err
	}
	if err := c.init(ctx); err != nil {
		return "", err
	}
	// Another process may take the port between our look and the server's. It learns nothing: SCRAM
	// shows no password.
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

// asWhom is the account to run the server as where we are root: the one that packages make for it,
// else the one that owns nothing.
func asWhom() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("the server does not run as root, and there is no account postgres or nobody")
}

// command is one of the server's programs, with an environment that says nothing about other
// servers.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + c.bin + ":/usr/bin:/bin", "HOME=" + c.dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.who}
	return cmd
}

// init makes the data directory. A client of the server asks it for a proof that it knows the
// password's verifier (SCRAM), so that nobody who has taken the port is believed.
func (c *cluster) init(ctx context.Context) error {
	file := filepath.Join(c.dir, "password")
	word := scramVerifier(c.password, rand.Text())
	if old, err := c.cutsLines(ctx); err != nil {
		return err
	} else if old {
		word = c.password
	}
	if err := c.hand(file, word); err != nil {
		return err
	}
	defer os.Remove(file) //nolint:errcheck // it lies in a folder that goes
	out, err := c.command(ctx, "initdb", "-A", "scram-sha-256", "-D", c.data(), "-U", "postgres", "--pwfile", file,
		"-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// cutsLines reports whether this initdb reads 99 bytes of the password's file and no more, as those
// before version 14 do. A verifier is longer, so they are given the password itself.
func (c *cluster) cutsLines(ctx context.Context) (bool, error) {
	cmd := c.command(ctx, "initdb", "--version")
	cmd.Dir, cmd.SysProcAttr = "/", nil // the folder is not handed over yet
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("initdb --version: %w", err)
	}
	words := strings.Fields(string(out)) // initdb (PostgreSQL) 15.18 (Debian …)
	if len(words) < 3 {
		return false, fmt.Errorf("initdb --version says %q", out)
	}
	var major int
	if _, err := fmt.Sscanf(words[2], "%d", &major); err != nil { // 15.18, 19beta1, 20devel
		return false, fmt.Errorf("initdb --version says %q", out)
	}
	return major < 14, nil
}

// hand writes a file for the server's account into the folder, and gives it both. It gives the
// folder last, because an account that owns the folder could put a link where we are about to
// write.
func (c *cluster) hand(file, text string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil && c.who != nil {
		err = f.Chown(int(c.who.Uid), int(c.who.Gid))
	}
	if err = errors.Join(err, f.Close()); err != nil || c.who == nil {
		return err
	}
	return os.Lchown(c.dir, int(c.who.Uid), int(c.who.Gid))
}

// scramVerifier is what the server keeps of a password (RFC 5803). It hashes once and not 4,096
// times, which would cost each connection milliseconds, because nobody guesses 128 random bits.
func scramVerifier(password, salt string) string {
	sum := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	salted := sum([]byte(password), salt+"\x00\x00\x00\x01") // PBKDF2 of one iteration and one block
	stored := sha256.Sum256(sum(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text([]byte(salt)), text(stored[:]), text(sum(salted, "Server Key")))
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
