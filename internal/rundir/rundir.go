// Package rundir is what the test processes of one run share: a folder with the addresses of
// the back ends that were started, the list of the tests that asked for them, and a sign that
// the run is still going on.
//
// The runner (testrun) makes the folder and names it in the environment. It links this package,
// which needs the standard library alone, and not localstack, which needs a client for every
// back end.
package rundir

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// This file owns what a run's folder says: each back end's endpoint, and which tests asked for it.
// Test processes write it through internal/testserver, and the runner reads it at the end. Who
// stores an endpoint holds the lock file of its name (Lock). Notes need no lock, because each is
// one short write in append mode. rundir_unix.go makes the folder, and starter.go names the program
// that starts servers.

const (
	// Env names the folder of the run. The runner sets it; without a runner it is empty.
	Env = "ONCEQ_RUN"
	// RequireEnv lists the back ends that must be there: "all", which leaves the optional ones out,
	// or names with commas between them.
	RequireEnv = "ONCEQ_BACKENDS"
)

// Names are the back ends that exist, in the order in which a run reports them.
var Names = []string{"postgres", "sqs", "dynamodb", "pubsub", "firestore", "chromium"}

// optional are those that "all" does not ask for, because only some machines can have them: the
// emulators of Pub/Sub and Firestore come with the Google Cloud CLI, and Chromium is a browser.
var optional = []string{"pubsub", "firestore", "chromium"}

// Instance is the name of a variant of a back end: "postgres", "postgres_durable".
func Instance(name, variant string) string {
	if variant == "" {
		return name
	}
	return name + "_" + variant
}

// Required reports whether a back end must be there, by the value of RequireEnv.
func Required(value, name string) (bool, error) {
	required := false
	for part := range strings.SplitSeq(value, ",") {
		switch part = strings.TrimSpace(part); {
		case part == "all" && !slices.Contains(optional, name) || part == name:
			required = true
		case part != "" && part != "all" && !slices.Contains(Names, part):
			return false, fmt.Errorf("%s=%s: there is no back end %q; it takes all, or some of %s with commas between them",
				RequireEnv, value, part, strings.Join(Names, ","))
		}
	}
	return required, nil
}

// Endpoint is how a back end was found, or why it was not.
type Endpoint struct {
	URL     string
	Version string // as the back end says it: "PostgreSQL 15.18"
	How     string // "environment", "host process", "Docker", "embedded"
	// StandIn is empty when this is the real thing, else it tells why there is none.
	StandIn string
	// Err is empty when the back end is there.
	Err string
	// Broken: somebody named this back end and it does not work, so its tests fail and are not
	// skipped.
	Broken bool
}

// Run is a run's folder.
type Run struct{ dir string }

// Open returns the run whose folder is dir.
func Open(dir string) Run { return Run{dir} }

// Dir returns the run's folder.
func (r Run) Dir() string { return r.dir }

func (r Run) path(name string) string { return filepath.Join(r.dir, name) }

// Load returns what Store stored under the name.
func (r Run) Load(name string) (e Endpoint, ok bool, err error) {
	data, err := os.ReadFile(r.path(name + ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	return e, true, json.Unmarshal(data, &e)
}

// Store stores an endpoint for all processes of the run; the caller has locked the name.
func (r Run) Store(name string, e Endpoint) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// the address has the password in it
	if err := os.WriteFile(r.path(name+".new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(r.path(name+".new"), r.path(name+".json"))
}

// Note records that a test asked for a back end, and whether it got it.
func (r Run) Note(name, pkg, test string, used bool) error {
	return r.add(name+".tests", fmt.Sprintf("%t %q %q", used, pkg, test))
}

// add puts a line at the end of a file of the run.
func (r Run) add(name, line string) error {
	f, err := os.OpenFile(r.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// one short write in append mode: processes do not tear each other's lines
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// tests returns how many different tests asked for a back end, and how many of them got it.
func (r Run) tests(name string) (asked, used int, err error) {
	f, err := os.Open(r.path(name + ".tests"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	got := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		word, test, _ := strings.Cut(lines.Text(), " ")
		got[test] = got[test] || word == "true"
	}
	for _, ok := range got {
		asked++
		if ok {
			used++
		}
	}
	return asked, used, lines.Err()
}

// Report is the line that tells what became of a back end in the run, and whether a test went
// without it.
func (r Run) Report(name string) (line string, missing bool, err error) {
	asked, used, err := r.tests(name)
	if err != nil {
		return "", false, err
	}
	if asked == 0 {
		return fmt.Sprintf("backend %s: not asked for, 0 tests", name), false, nil
	}
	e, ok, err := r.Load(name)
	if variants, _ := filepath.Glob(r.path(Instance(name, "*") + ".json")); !ok && len(variants) > 0 {
		// nobody asked for the plain one
		e, ok, err = r.Load(strings.TrimSuffix(filepath.Base(variants[0]), ".json"))
	}
	switch {
	case err != nil:
		return "", false, err
	case !ok:
		e.Err = "its start was interrupted"
	}
	count := fmt.Sprintf("%d of %d tests", used, asked)
	if used == asked {
		count = fmt.Sprintf("%d tests", used)
		if used == 1 {
			count = "1 test"
		}
	}
	if e.Err != "" {
		return fmt.Sprintf("backend %s: none (%s), %s", name, e.Err, count), true, nil
	}
	if e.StandIn != "" && used < asked {
		return fmt.Sprintf("backend %s: no real one (%s), %s", name, e.StandIn, count), true, nil
	}
	return fmt.Sprintf("backend %s: %s (%s), %s", name, e.Version, e.How, count), used < asked, nil
}
