package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/rundir"
)

// A backend is a service that tests can ask for: how it is found, and how it is started.
type backend struct {
	name string // one of rundir.Names
	env  string // the environment variable that may hold its address
	// ways to start one, the first that works is taken
	ways []way
	// version asks what answers at the address; it fails when nothing does, or when it is not what the variant needs
	version func(ctx context.Context, url, variant string) (string, error)
	// standIn is the version of what is taken where no real one can be had, and does where none is required; empty when there
	// is no such thing.
	standIn string
}

// A way starts the back end. What is to be ended later is handed to the site's onClose, as soon as it is there: a
// start that fails half-way is ended by it as well.
type way struct {
	how   string
	start func(context.Context, *site) (url string, err error)
	// inside: it starts nothing outside its own process.
	inside bool
}

// backends are the back ends, by name.
var backends = map[string]*backend{"postgres": &postgres, "sqs": &sqsBackend, "dynamodb": &dynamoDBBackend}

// How long a back end may take.
const (
	// startLimit bounds the start, in whatever way, pulling an image included.
	startLimit = 6 * time.Minute
	stopLimit  = 20 * time.Second
)

// A site is where one instance lives.
type site struct {
	dir     string // its own, removed afterwards
	variant string // what is special about the instance, in the back end's own words
	version string // what has been started, where it does not tell itself
	closers []func()
}

func (s *site) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *site) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
	s.closers = nil
}

// start tries the ways in turn.
func (b *backend) start(ctx context.Context, s *site, ways []way) rundir.Endpoint {
	var why []string
	for _, w := range ways {
		url, err := w.start(ctx, s)
		var version string
		if err == nil {
			version, err = b.version(ctx, url, s.variant)
			version = strings.TrimSuffix(version+" "+s.version, " ")
		}
		if err == nil {
			e := rundir.Endpoint{URL: url, Version: version, How: w.how}
			if version == b.standIn {
				e.StandIn = strings.Join(append(why, w.how+": "+version), "; ")
			}
			return e
		}
		s.close()
		s.version = ""
		why = append(why, w.how+": "+oneLine(err))
	}
	return rundir.Endpoint{Err: strings.Join(why, "; ")}
}

// oneLine makes an error fit into the line that ends a run.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// found holds what this process knows already, by instance.
var found struct {
	sync.Mutex
	byName map[string]rundir.Endpoint
	// held are the writing ends of the pipes that guards watch; the end of the process closes them.
	held []*os.File
}

// workDir is the folder of the package under test: go test starts a test binary there, and tests may leave it.
var workDir, _ = os.Getwd()

// get returns the back end's address. A test that cannot have it is skipped, or fails where the back end was required.
func (b *backend) get(t testing.TB, variant string) rundir.Endpoint {
	t.Helper()
	required, err := rundir.Required(os.Getenv(rundir.RequireEnv), b.name)
	if err != nil {
		t.Fatal(err)
	}
	// Read here and not at the start of the process: so go test knows that a result of another run is not this one's.
	dir := os.Getenv(rundir.Env)
	e, err := b.find(variant, dir)
	if err != nil {
		t.Fatalf("localstack: %s: %v", b.name, err)
	}
	if dir != "" {
		used := e.Err == "" && (e.StandIn == "" || !required)
		if err := rundir.Open(dir).Note(b.name, workDir, t.Name(), used); err != nil {
			t.Fatalf("localstack: %s: %v", b.name, err)
		}
	}
	switch {
	case e.StandIn != "" && required:
		t.Fatalf("backend %s: no real one (%s), and %s=%s requires it", b.name, e.StandIn, rundir.RequireEnv, os.Getenv(rundir.RequireEnv))
	case e.StandIn != "":
		t.Logf("backend %s: no real one (%s)", b.name, e.StandIn)
	case e.Err == "":
	case e.Broken:
		t.Fatalf("backend %s: %s", b.name, e.Err)
	case required:
		t.Fatalf("backend %s: none (%s), and %s=%s requires it", b.name, e.Err, rundir.RequireEnv, os.Getenv(rundir.RequireEnv))
	default:
		t.Skipf("backend %s: none (%s)", b.name, e.Err)
	}
	return e
}

// find looks for the back end once in a process, and once in a run.
func (b *backend) find(variant, dir string) (e rundir.Endpoint, err error) {
	instance := b.name
	if variant != "" {
		instance += "-" + variant
	}
	found.Lock()
	defer found.Unlock()
	e, ok := found.byName[instance]
	if ok {
		return e, nil
	}
	if dir == "" {
		e, err = b.search(variant, dir)
	} else {
		e, err = b.share(rundir.Open(dir), instance, variant)
	}
	if err != nil {
		return e, err
	}
	if found.byName == nil {
		found.byName = map[string]rundir.Endpoint{}
	}
	found.byName[instance] = e
	return e, nil
}

// share lets the first process of the run search, and the others take what it found.
func (b *backend) share(run rundir.Run, instance, variant string) (e rundir.Endpoint, err error) {
	unlock, err := run.Lock(instance)
	if err != nil {
		return e, fmt.Errorf("%s: %w", rundir.Env, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	e, ok, err := run.Load(instance)
	if ok || err != nil {
		return e, err
	}
	if e, err = b.search(variant, run.Dir()); err != nil {
		return e, err
	}
	return e, run.Store(instance, e)
}

// search takes the address from the environment, or starts an instance: one that ends with the run whose folder is
// dir, or with this process.
func (b *backend) search(variant, dir string) (rundir.Endpoint, error) {
	if url := os.Getenv(b.env); url != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		version, err := b.version(ctx, url, variant)
		if err != nil {
			return rundir.Endpoint{Err: b.env + ": " + oneLine(err), Broken: true}, nil
		}
		e := rundir.Endpoint{URL: url, Version: version, How: "environment"}
		if version == b.standIn {
			e.StandIn = b.env + ": " + version
		}
		return e, nil
	}
	o := order{Backend: b.name, Variant: variant, Dir: dir}
	if dir != "" {
		watch, err := rundir.Open(dir).Watch()
		if err != nil {
			return rundir.Endpoint{}, fmt.Errorf("%s: %w", rundir.Env, err)
		}
		defer watch.Close()
		return startGuard(o, watch)
	}
	watch, hold, err := os.Pipe()
	if err != nil {
		return rundir.Endpoint{}, err
	}
	defer watch.Close()
	found.held = append(found.held, hold)
	return startGuard(o, watch)
}

// firstOf waits for the first of the addresses where a server answers, as ask tells.
func firstOf(ctx context.Context, addrs []string, limit time.Duration, ask func(ctx context.Context, addr string) error) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var last error
		for _, addr := range addrs {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := ask(try, addr)
			cancel()
			if err == nil {
				return addr, nil
			}
			last = err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var numbers = regexp.MustCompile(`\d+`)

// majorIn returns the first number in a text, a path such as /usr/lib/postgresql/15/bin or an image's tag; 0 when there is none.
func majorIn(text string) int {
	n, _ := strconv.Atoi(numbers.FindString(text))
	return n
}
