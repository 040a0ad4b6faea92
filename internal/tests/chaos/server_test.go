//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceq/onceq/internal/child"
	"github.com/onceq/onceq/internal/must"
)

// This file owns a PostgreSQL server of a scene's own, which can be restarted and restored, and
// whose clock can be changed. One goroutine at a time calls it.

type server struct {
	bin, data, addr, url string
	who                  *syscall.Credential
	clock                string // the file that libfaketime reads; "" = there is none
	preload              string
	p                    *child.Child
	log                  string
}

// newServer begins one, in a folder of its own. Where there are no programs or no account for that,
// it says so.
func newServer(t *testing.T, dir string) (*server, error) {
	t.Helper()
	s := &server{data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log")}
	var err error
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("a server does not run as root: %w", err)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		s.who = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	password := rand.Text()
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.who != nil {
		if err := os.Chown(file, int(s.who.Uid), int(s.who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.command("initdb", "-A", "scram-sha-256", "-D", s.data, "-U", "postgres", "--pwfile", file,
		"-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	s.addr = l.Addr().String()
	_ = l.Close()
	s.url = "postgres://postgres:" + password + "@" + s.addr + "/postgres?sslmode=disable"
	if s.preload = faketime(); s.preload != "" {
		s.clock = filepath.Join(dir, "clock")
		if err := s.setClock(0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if s.p != nil {
			s.p.Kill()
			<-s.p.Done()
		}
		if t.Failed() {
			t.Logf("the server's last words: %s", s.lastWords(30))
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, nil
}

// programs finds the folder of the server's programs.
func programs() (string, error) {
	dirs := append([]string{os.Getenv("ONCEQ_POSTGRES_BIN")}, filepath.SplitList(os.Getenv("PATH"))...)
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range append(dirs, installed...) {
		if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil && filepath.IsAbs(dir) {
			return dir, nil
		}
	}
	return "", errors.New("no programs of a PostgreSQL server")
}

// faketime finds libfaketime. It cannot lie to a program in Go, which asks the kernel.
func faketime() string {
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	for _, lib := range append([]string{os.Getenv("ONCEQ_FAKETIME")}, libs...) {
		if _, err := os.Stat(lib); err == nil {
			return lib
		}
	}
	return ""
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = filepath.Dir(s.data)
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.who}
	return cmd
}

// start starts the server, and waits until it answers.
func (s *server) start(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(s.addr)
	cmd := s.command("postgres", "-D", s.data, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port, "-c", "unix_socket_directories=",
		"-c", "max_connections=100", "-c", "jit=off", "-c", "dynamic_shared_memory_type=mmap", "-c", "max_wal_size=64MB", "-c", "min_wal_size=32MB",
		"-c", "fsync=off") // the machine stays on; what a transaction was promised is written
	if s.clock != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+s.preload, "FAKETIME_TIMESTAMP_FILE="+s.clock, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1")
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	if s.p, err = child.Start(cmd, func(string) {}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the server does not answer"))
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.p.Done():
			return fmt.Errorf("the server has ended (%w): %s", s.p.Err(), s.lastWords(1))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastWords are the last lines of the server's log.
func (s *server) lastWords(n int) string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// runs reports whether the server is there.
func (s *server) runs() bool {
	select {
	case <-s.p.Done():
		return false
	default:
		return true
	}
}

// stop ends the server: as a crash does (SIGQUIT), or in good order and with all written (SIGINT).
func (s *server) stop(sig syscall.Signal) error {
	if err := s.p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.p.Done():
		return nil
	case <-time.After(30 * time.Second):
		s.p.Kill()
		return errors.New("the server does not stop")
	}
}

// copyTo makes the folder `to` what the server's is. The server is down.
func (s *server) copyTo(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// setClock puts the server's clock off.
func (s *server) setClock(by time.Duration) error {
	return os.WriteFile(s.clock, fmt.Appendf(nil, "%+.3f\n", by.Seconds()), 0o644)
}
