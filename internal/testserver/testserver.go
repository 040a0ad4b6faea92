// Package testserver gives a test the address of a real back end: the one that the environment
// names, else the one that the run has started, which make test is.
//
// A back end is looked for once in a process and, in a run, once in the run: the first process
// that asks keeps what it found in the run's folder (internal/rundir), which also counts the
// tests that asked, and those that went without. Drivers' and stores' tests come here, through
// testpg, testaws and testgcp; localstack, a module of its own, does as well, and brings what
// starts a back end in a process that has no run. So this package needs the standard library
// alone, and nothing that starts a back end reaches those who import a driver.
package testserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/rundir"
)

// A Backend is a service that tests can ask for.
type Backend struct {
	// Name is one of rundir.Names.
	Name string
	// Version asks what answers at the address; it fails when nothing does, or when it is not
	// what the variant needs.
	Version func(ctx context.Context, url, variant string) (string, error)
	// StandIn is the version of what is taken where no real one can be had, and does where none
	// is required; empty when there is no such thing.
	StandIn string
	// Start starts one that ends when watch does. nil = this program cannot, and asks the run.
	Start func(o Order, watch *os.File) (rundir.Endpoint, error)
}

// An Order is what is to be started.
type Order struct {
	Backend string
	Variant string // what is special about the instance, in the back end's own words
	Dir     string // the run's folder; without a run the system's for temporary files
}

// ownEnv are the variables of back ends for which their makers have chosen one, and of a browser,
// which is named by its path.
var ownEnv = map[string]string{"pubsub": "PUBSUB_EMULATOR_HOST", "firestore": "FIRESTORE_EMULATOR_HOST", "chromium": "ONCEQ_CHROMIUM"}

// Env is the variable that may hold the address of a variant.
func Env(name, variant string) string {
	if env := ownEnv[name]; env != "" && variant == "" {
		return env
	}
	return "ONCEQ_" + strings.ToUpper(rundir.Instance(name, variant)) + "_URL"
}

// Named returns the address that the environment holds, and the variable that does. A variant
// has a variable of its own, and the back end's serves where that is not set.
func (b *Backend) Named(variant string) (url, env string) {
	env = Env(b.Name, variant)
	if url = os.Getenv(env); url == "" && variant != "" {
		env = Env(b.Name, "")
		url = os.Getenv(env)
	}
	return url, env
}

// found holds what this process knows already, by instance.
var found struct {
	sync.Mutex
	byName map[string]rundir.Endpoint
	// held are the writing ends of the pipes that what was started watches; the end of the
	// process closes them.
	held []*os.File
}

// workDir is the folder of the package under test: go test starts a test binary there, and
// tests may leave it.
var workDir, _ = os.Getwd()

// Get returns the back end's address. A test that cannot have it is skipped, or fails where the
// back end was required.
func (b *Backend) Get(t testing.TB, variant string) rundir.Endpoint {
	t.Helper()
	required, err := rundir.Required(os.Getenv(rundir.RequireEnv), b.Name)
	if err != nil {
		t.Fatal(err)
	}
	// Read here and not at the start of the process: so go test knows that a result of another
	// run is not this one's.
	dir := os.Getenv(rundir.Env)
	e, err := b.Find(variant, dir)
	if err != nil {
		t.Fatalf("backend %s: %v", b.Name, err)
	}
	if dir != "" {
		used := e.Err == "" && (e.StandIn == "" || !required)
		if err := rundir.Open(dir).Note(b.Name, workDir, t.Name(), used); err != nil {
			t.Fatalf("backend %s: %v", b.Name, err)
		}
	}
	switch {
	case e.StandIn != "" && required:
		t.Fatalf("backend %s: no real one (%s), and %s=%s requires it", b.Name, e.StandIn, rundir.RequireEnv, os.Getenv(rundir.RequireEnv))
	case e.StandIn != "":
		t.Logf("backend %s: no real one (%s)", b.Name, e.StandIn)
	case e.Err == "":
	case e.Broken:
		t.Fatalf("backend %s: %s", b.Name, e.Err)
	case required:
		t.Fatalf("backend %s: none (%s), and %s=%s requires it", b.Name, e.Err, rundir.RequireEnv, os.Getenv(rundir.RequireEnv))
	default:
		t.Skipf("backend %s: none (%s)", b.Name, e.Err)
	}
	return e
}

// Find looks for the back end once in a process, and once in the run whose folder is dir.
func (b *Backend) Find(variant, dir string) (e rundir.Endpoint, err error) {
	instance := rundir.Instance(b.Name, variant)
	found.Lock()
	defer found.Unlock()
	e, ok := found.byName[instance]
	if ok {
		return e, nil
	}
	switch url, _ := b.Named(variant); {
	case dir == "":
		e, err = b.search(variant, dir)
	case url == "" && b.Start == nil:
		e, err = rundir.Open(dir).Ask(instance)
	default:
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
func (b *Backend) share(run rundir.Run, instance, variant string) (e rundir.Endpoint, err error) {
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

// search takes the address from the environment, or has an instance started: one that ends with
// the run whose folder is dir, or with this process.
func (b *Backend) search(variant, dir string) (rundir.Endpoint, error) {
	if url, env := b.Named(variant); url != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		version, err := b.Version(ctx, url, variant)
		if err != nil {
			return rundir.Endpoint{Err: env + ": " + OneLine(err), Broken: true}, nil
		}
		e := rundir.Endpoint{URL: url, Version: version, How: "environment"}
		if version == b.StandIn {
			e.StandIn = env + ": " + version
		}
		return e, nil
	}
	if b.Start == nil {
		return rundir.Endpoint{Err: "no server: run make test, or set " + Env(b.Name, variant)}, nil
	}
	o := Order{Backend: b.Name, Variant: variant, Dir: dir}
	if dir != "" {
		watch, err := rundir.Open(dir).Watch()
		if err != nil {
			return rundir.Endpoint{}, fmt.Errorf("%s: %w", rundir.Env, err)
		}
		defer watch.Close()
		return b.Start(o, watch)
	}
	watch, hold, err := os.Pipe()
	if err != nil {
		return rundir.Endpoint{}, err
	}
	defer watch.Close()
	found.held = append(found.held, hold)
	return b.Start(o, watch)
}

// OneLine makes an error fit into the line that ends a run.
func OneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Together lets n tests of the package run at a time, where -parallel does not say how many: tests
// on a real server wait for its timeouts more than they compute. A package's TestMain calls it
// before its tests run.
func Together(n int) error {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if given {
		return nil
	}
	return flag.Set(parallel, strconv.Itoa(n))
}
