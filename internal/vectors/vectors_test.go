package vectors

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/must"
)

var update = flag.Bool("update", false, "write the files in docs/vectors")

// at is the time of the vectors.
var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hold compares the file with all, a line each, or writes it.
func hold[V any](t *testing.T, name string, all []V) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "vectors", name)
	var b bytes.Buffer
	b.WriteString("[\n")
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, v := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString("]\n")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	old := must.Get(os.ReadFile(path))
	if !bytes.Equal(old, b.Bytes()) {
		t.Errorf("docs/vectors/%s is not what the code does. Programs in other languages rely on it: only add to it (go test ./internal/vectors -update)", name)
	}
}
