package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

var pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestActionsArePinned: a tag of an action can be moved to other code, a hash cannot. The version
// beside it is for people and for Dependabot.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))
		for i, line := range strings.Split(string(text), "\n") {
			if _, uses, ok := strings.Cut(line, "uses: "); ok && !pinned.MatchString(uses) {
				t.Errorf("%s:%d: %q is named by no hash", filepath.Base(file), i+1, uses)
			}
		}
	}
}
