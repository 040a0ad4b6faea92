//go:build unix

// Testrun runs a command, go test with its arguments, so that its test processes share one
// instance of each back end, and tells at the end what the back ends were:
//
//	go run ./localstack/internal/testrun go test ./...
//
// A test that cannot start a back end itself, as a driver's, has it started by the program
// with, which is compiled for the first that asks. Its exit code is the command's. Where
// ONCEQ_BACKENDS requires a back end and a test went without it, it is not 0.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/rundir"
)

// This file owns the whole command, on systems where it can run: the runner, and the sweeper, which
// is a second process of the same program. The runner's one goroutine has all state; signals and
// the command's end come to it through channels. So nothing is locked.

const (
	// sweepEnv makes this program a sweeper: the process that makes the run's folder and
	// removes it when the runner is gone, even when that is killed.
	sweepEnv = "ONCEQ_RUN_SWEEP"
	// endLimit bounds the end of all servers of the run.
	endLimit = 40 * time.Second
	// killAfter is how long the command may take to end after the first signal.
	killAfter = 10 * time.Second
)

func main() {
	if os.Getenv(sweepEnv) != "" {
		if err := sweep(); err != nil {
			fmt.Fprintln(os.Stderr, "testrun:", err)
			os.Exit(1)
		}
		return
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// sweep makes a run's folder, says where, and removes it after the end of standard input.
func sweep() error {
	// in a session of its own: the signals are not for it
	r, err := rundir.Create("")
	if err != nil {
		return err
	}
	fmt.Println(r.Dir())
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is what matters, however it comes
	return r.Remove(endLimit)
}

// run runs the command in a run of its own.
func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: testrun COMMAND [ARGUMENT...]")
	}
	require := os.Getenv(rundir.RequireEnv)
	if _, err := rundir.Required(require, ""); err != nil {
		return 2, err
	}
	sweeper, err := startSweeper()
	if err != nil {
		return 2, err
	}
	r := rundir.Open(sweeper.dir)
	hold, err := r.Hold()
	if err == nil {
		err = setStarter(r)
	}
	if err != nil {
		return 2, errors.Join(err, sweeper.end())
	}
	code, err = command(args, r.Dir())
	said, saidErr := r.Said()
	lines, short, readErr := reports(r, require)
	lines = append(said, lines...)
	err = errors.Join(err, saidErr, readErr, hold.Close(), sweeper.end())
	for _, line := range lines {
		fmt.Println(line)
	}
	if code == 0 && short {
		return 1, errors.Join(err, fmt.Errorf("%s=%s, and a back end is missing", rundir.RequireEnv, require))
	}
	return code, err
}

// setStarter names the program that starts a back end of the run. It is found beside the source
// of this one, whatever folder the command runs in.
func setStarter(r rundir.Run) error {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return errors.New("cannot find its source; is it built with -trimpath?")
	}
	dir := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	return r.SetStarter("go", "-C", dir, "run", "./internal/with")
}

// reports returns a line for each back end, and whether a required one was missing.
func reports(r rundir.Run, require string) (lines []string, short bool, err error) {
	for _, name := range rundir.Names {
		line, missing, err := r.Report(name)
		if err != nil {
			return lines, short, err
		}
		lines = append(lines, line)
		required, err := rundir.Required(require, name)
		if err != nil {
			return lines, short, err
		}
		short = short || required && missing
	}
	return lines, short, nil
}

// command runs the command in a process group of its own, so that one signal reaches all of it:
// the go command alone would leave its test processes behind.
func command(args []string, dir string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), rundir.Env+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var kill <-chan time.Time
	interrupted := false
	for {
		select {
		case sig := <-signals:
			s := syscall.SIGINT
			if sig == syscall.SIGQUIT {
				s = syscall.SIGQUIT // for the stacks
			}
			_ = syscall.Kill(-cmd.Process.Pid, s)
			if kill == nil {
				kill = time.After(killAfter)
			}
			interrupted = true
		case <-kill:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case err := <-ended:
			code := cmd.ProcessState.ExitCode()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 2, err
			}
			if interrupted {
				// what the command left in its group goes with it
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				return max(code, 1), errors.New("interrupted")
			}
			if code < 0 {
				return 1, fmt.Errorf("%s: %w", args[0], err)
			}
			return code, nil
		}
	}
}

// A sweeper is the process that runs sweep.
type sweeper struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
}

func startSweeper() (*sweeper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), sweepEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the run's folder: %w", err), stdin.Close(), cmd.Wait())
	}
	return &sweeper{strings.TrimSpace(line), cmd, stdin}, nil
}

// end waits until everything that the run started is gone.
func (s *sweeper) end() error {
	if err := s.stdin.Close(); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("ending the run in %s: %w", s.dir, err)
	}
	return nil
}
