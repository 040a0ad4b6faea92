package clock

import (
	"testing"
	"time"
)

func TestKeep(t *testing.T) {
	root := t.TempDir()
	if runs, err := Runs(root); err != nil || len(runs) != 0 {
		t.Fatalf("%v, %v before the first run", runs, err)
	}
	for speed, took := range map[string]time.Duration{"quick": 40 * time.Second, "test": 7 * time.Minute} {
		if err := Keep(root, speed, took); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Runs(root)
	if err != nil || runs["quick"].Seconds != 40 || runs["test"].Seconds != 420 || runs["test"].Ended.IsZero() {
		t.Errorf("%+v, %v", runs, err)
	}
}
