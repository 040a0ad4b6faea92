package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file owns the runs of go test, which are beside each other, each with a goroutine that reads
// what it writes. They share a results, which has a lock.

// A leg is one go test with its list of packages.
type leg struct {
	raced bool
	// yields is set where nothing waits: the processors are for others first.
	yields bool
	env    string // one variable more
	flags  []string
	pkgs   []string
	then   *leg // begins when this one has ended
}

// args are the leg's, without the go command's name.
func (l *leg) args(flags []string) []string {
	args := []string{"test"}
	if l.raced {
		args = append(args, "-race")
		for _, p := range unwatched {
			args = append(args, "-gcflags="+p+"=-race=false")
		}
	}
	return slices.Concat(args, []string{"-vet=off"}, l.flags, flags, l.pkgs)
}

// results are what the legs have told.
type results struct {
	mu       sync.Mutex
	out      io.Writer
	code     int
	cached   int
	packages []result
}

// result is a package that had tests.
type result struct {
	pkg     string
	seconds float64
}

// all runs the legs beside each other. What one writes about a package stays together.
// After a signal on stop none begins any more.
func all(legs []leg, env, flags []string, stop <-chan os.Signal) (*results, error) {
	r := &results{out: os.Stdout}
	var wg sync.WaitGroup
	errs := make([]error, len(legs))
	for i := range legs {
		wg.Go(func() {
			for l := &legs[i]; l != nil && len(stop) == 0; l = l.then {
				args := l.args(flags)
				told := r.say(fmt.Sprintln(strings.TrimSpace("+ "+l.env), "go", strings.Join(args[:len(args)-len(l.pkgs)], " "), shortened(l.pkgs)))
				errs[i] = errors.Join(errs[i], told, r.run(args, append(slices.Clip(env), l.env), l.yields, len(legs) > 1))
			}
		})
	}
	wg.Wait()
	return r, errors.Join(errs...)
}

// shortened is a list of packages as a line shows it.
func shortened(pkgs []string) string {
	const shown = 5
	if len(pkgs) <= shown {
		return strings.Join(pkgs, " ")
	}
	return fmt.Sprintf("%s (and %d more)", strings.Join(pkgs[:shown], " "), len(pkgs)-shown)
}

// run runs go test. yields gives it less of the processors than others get. together keeps what it
// writes back until the package has ended.
func (r *results) run(args, env []string, yields, together bool) error {
	cmd := exec.Command("go", args...)
	if nice, err := exec.LookPath("nice"); yields && err == nil {
		cmd = exec.Command(nice, slices.Concat([]string{"-n", "5", "go"}, args)...)
	}
	cmd.Env = env
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := r.read(pipe, together); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.code = cmp.Or(r.code, max(exit.ExitCode(), 1))
		return nil
	}
	return err
}

// last is a package's last line: its seconds, or (cached).
var last = regexp.MustCompile(`^(ok  |FAIL|\?   |    )\t(\S+)\s+(?:([0-9.]+)s|(\(cached\)))?`)

func (r *results) say(text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := io.WriteString(r.out, text)
	return err
}

// read writes go test's lines on, and notes how long the packages took.
func (r *results) read(from io.Reader, together bool) error {
	var block strings.Builder
	emit := func() error {
		defer block.Reset()
		return r.say(block.String())
	}
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		block.WriteString(line)
		if m := last.FindStringSubmatch(line); m != nil {
			r.note(m[2], m[3], m[4] != "")
		} else if together && err == nil {
			continue
		}
		if err := errors.Join(emit(), unless(err, io.EOF)); err != nil || line == "" {
			return err
		}
		if err != nil {
			return nil
		}
	}
}

func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

func (r *results) note(pkg, seconds string, cached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cached {
		r.cached++
	}
	if s, err := strconv.ParseFloat(seconds, 64); err == nil {
		r.packages = append(r.packages, result{pkg, s})
	}
}

// tell is the end of a run.
func (r *results) tell(speed, seed string, took time.Duration) string {
	slices.SortFunc(r.packages, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
	var sum float64
	var longest []string
	for i, p := range r.packages {
		sum += p.seconds
		if i < 8 {
			longest = append(longest, fmt.Sprintf("%s %.0f", cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.pkg, module), "/"), "onceq"), p.seconds))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "make %s: %.0f s; %d packages took %.0f s together", speed, took.Seconds(), len(r.packages), sum)
	if r.cached > 0 {
		fmt.Fprintf(&b, ", and %d had not changed since they passed", r.cached)
	}
	fmt.Fprintf(&b, "\nmake %s: longest: %s\n", speed, strings.Join(longest, ", "))
	if speed != "quick" {
		fmt.Fprintf(&b, "make %s: the seed of what is drawn: ONCEQ_SEED=%s\n", speed, seed)
	}
	return b.String()
}
