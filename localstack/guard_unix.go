//go:build unix

package localstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/internal/testserver"
)

// This file owns the guard, the process that keeps a back end alive for exactly as long as its run,
// and the programs that run under it. A test process calls startGuard under the locks of
// internal/testserver, one of the process and one of the run. All else runs in the guard, whose
// main goroutine has the site. Only a process's done channel is shared.

// guardEnv makes a test binary a guard. A second process of the same binary starts the back end, in
// a session of its own, and waits for the end of a pipe. So the back end outlives the test process
// that asked for it first. It never outlives the run, even if the run is killed.
const guardEnv = "ONCEQ_LOCALSTACK_GUARD"

// The guard is the test binary before anything of it has run. It has to be an init: there is no
// other way into a binary whose main is not ours.
func init() {
	if text := os.Getenv(guardEnv); text != "" {
		os.Exit(guard(text))
	}
}

// guard starts a back end, tells its address, and ends it when standard input ends.
func guard(text string) int {
	answer := os.NewFile(3, "answer")
	var o testserver.Order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return 2
	}
	// its children are no guards
	if err := os.Unsetenv(guardEnv); err != nil {
		return 2
	}
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is what matters, however it comes
		end()
	}()
	e, stop := run(ctx, o)
	// Whoever asked may be gone by now, and then the pipe on standard input has ended, too.
	_ = errors.Join(json.NewEncoder(answer).Encode(e), answer.Close())
	if e.Err == "" {
		<-ctx.Done()
	}
	if err := stop(); err != nil {
		return 1
	}
	return 0
}

// run starts the back end in a folder of its own. What it returns ends it and removes the folder.
func run(ctx context.Context, o testserver.Order) (rundir.Endpoint, func() error) {
	dir, err := os.MkdirTemp(o.Dir, "onceq-"+o.Backend+"-")
	if err != nil {
		return rundir.Endpoint{Err: err.Error()}, func() error { return nil }
	}
	s := &site{dir: dir, variant: o.Variant}
	// a server that runs as another user passes through
	if err := os.Chmod(dir, 0o711); err != nil {
		return rundir.Endpoint{Err: err.Error()}, func() error { return os.RemoveAll(dir) }
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b := backends[o.Backend]
	e := b.start(ctx, s, b.ways)
	return e, func() error {
		s.close()
		return os.RemoveAll(dir)
	}
}

// startGuard starts a back end in a process that watches the file it is given, and returns what
// that says.
func startGuard(o testserver.Order, watch *os.File) (rundir.Endpoint, error) {
	var e rundir.Endpoint
	text, err := json.Marshal(o)
	if err != nil {
		return e, err
	}
	exe, err := os.Executable()
	if err != nil {
		return e, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return e, err
	}
	defer reader.Close()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), guardEnv+"="+string(text))
	cmd.Dir = "/"
	cmd.Stdin = watch
	// Not our output: the go command waits until nobody has it open any more.
	cmd.Stdout, cmd.Stderr = nil, nil
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err = errors.Join(err, writer.Close()); err != nil {
		return e, err
	}
	go func() { _ = cmd.Wait() }() // no zombie while this process lives
	if err := reader.SetReadDeadline(time.Now().Add(startLimit + stopLimit)); err != nil {
		return e, err
	}
	if err := json.NewDecoder(reader).Decode(&e); err != nil {
		return e, fmt.Errorf("the process that starts it gave no answer: %w", err)
	}
	return e, nil
}

// scratch makes a folder that goes with the site. It is in memory if the system has so many bytes
// of it to spare. Otherwise it is where another user may come.
func (s *site) scratch(memory uint64) (string, error) {
	in := memoryDir(memory)
	if memory == 0 || in == "" {
		in = s.dir
		if !passable(in) {
			in = "/tmp"
		}
	}
	dir, err := os.MkdirTemp(in, "onceq-")
	if err == nil {
		s.onClose(func() { _ = os.RemoveAll(dir) })
	}
	return dir, err
}

// passable reports whether any user may pass through the folder and those above it.
func passable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == "/" || dir == "." {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// A process is a program of a back end.
type process struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

// run starts a program. The site's end ends it with the signal sig. Its output goes to a file, and
// process.err tells that file's end.
func (s *site) run(cmd *exec.Cmd, sig os.Signal) (*process, error) {
	log, err := os.CreateTemp(s.dir, "log-")
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr, sig.(syscall.Signal))
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // err tells
	}()
	s.onClose(func() {
		_ = cmd.Process.Signal(sig) // it may have ended
		select {
		case <-p.done:
		case <-time.After(stopLimit / 2):
			_ = cmd.Process.Kill()
			<-p.done
		}
		_ = log.Close()
	})
	return p, nil
}

// listen binds a port of the loopback address that a server is to inherit. The port is never free
// in between, so nobody else can take it and be believed. The caller closes the file when the
// server has it.
func listen(ctx context.Context) (f *os.File, addr string, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer l.Close()
	f, err = l.(*net.TCPListener).File()
	return f, l.Addr().String(), err
}

// serve starts a program and waits until it answers, as wait tells, or has ended by itself.
func (s *site) serve(
	ctx context.Context, cmd *exec.Cmd, sig os.Signal, wait func(context.Context) (url string, err error),
) (url string, ended bool, err error) {
	p, err := s.run(cmd, sig)
	if err != nil {
		return "", errors.Is(err, fs.ErrNotExist), err
	}
	return s.until(ctx, p, wait)
}

// until waits until a program answers, as wait tells, or has ended by itself.
func (s *site) until(ctx context.Context, p *process, wait func(context.Context) (url string, err error)) (url string, ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.done:
			cancel(p.err())
		case <-ctx.Done():
		}
	}()
	url, err = wait(ctx)
	select {
	case <-p.done:
		ended = true
	default:
	}
	return url, ended, err
}

// err tells what the program said at its end.
func (p *process) err() error {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err
	}
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return fmt.Errorf("%s ended (%s): %s", p.cmd.Path, p.cmd.ProcessState, lines[len(lines)-1])
}
