package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// SetStarter saves the command that starts a back end. The back end's name (see [Instance]) is its
// last argument, and the run's folder is in its environment. The command stores where the back end
// is, or why there is none.
func (r Run) SetStarter(command ...string) error {
	data, err := json.Marshal(command)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("starter"), data, 0o600)
}

// Ask returns the back end of the run, which the run's starter starts for the first who asks.
// It is for programs that cannot start one: a driver's tests.
func (r Run) Ask(instance string) (e Endpoint, err error) {
	// not the name's own lock: the starter takes that
	unlock, err := r.Lock(instance + ".ask")
	if err != nil {
		return e, fmt.Errorf("%s: %w", Env, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	e, ok, err := r.Load(instance)
	if ok || err != nil {
		return e, err
	}
	data, err := os.ReadFile(r.path("starter"))
	if err != nil {
		return e, fmt.Errorf("the run in %s starts nothing: %w", r.dir, err)
	}
	var command []string
	if err := json.Unmarshal(data, &command); err != nil {
		return e, err
	}
	cmd := exec.Command(command[0], append(command[1:], instance)...)
	cmd.Env = append(os.Environ(), Env+"="+r.dir)
	out, failed := cmd.CombinedOutput()
	// what it stored counts, a reason why there is none included
	e, ok, err = r.Load(instance)
	if ok || err != nil {
		return e, err
	}
	return e, fmt.Errorf("%s %s: %w: %.1000s", strings.Join(command, " "), instance, failed, out)
}
