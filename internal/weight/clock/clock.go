// Package clock keeps how long the last run of the tests took, by its speed: internal/speeds writes
// it, and make weight prints it. It is kept in bin, which git ignores.
package clock

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const file = "bin/speeds.json"

// A Run is the last one of its speed that passed.
type Run struct {
	Seconds float64   `json:"seconds"`
	Ended   time.Time `json:"ended"`
}

// Runs returns the last runs in the tree at root, by speed.
func Runs(root string) (map[string]Run, error) {
	runs := map[string]Run{}
	b, err := os.ReadFile(filepath.Join(root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return runs, nil
	}
	if err != nil {
		return nil, err
	}
	return runs, json.Unmarshal(b, &runs)
}

// Keep notes that a run in the tree at root has ended.
func Keep(root, speed string, took time.Duration) error {
	runs, err := Runs(root)
	if err != nil {
		return err
	}
	runs[speed] = Run{took.Round(100 * time.Millisecond).Seconds(), time.Now().UTC().Truncate(time.Second)}
	b, err := json.MarshalIndent(runs, "", "\t")
	if err != nil {
		return err
	}
	name := filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o644)
}
