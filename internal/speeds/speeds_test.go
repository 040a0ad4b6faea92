package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestListsNameFolders: a pattern that names nothing any more would race a package, or start it
// late, unseen.
func TestListsNameFolders(t *testing.T) {
	for _, p := range append(patterns(), append(first, matrix)...) {
		dir := filepath.Join("../..", strings.TrimSuffix(p, "/..."))
		if s, err := os.Stat(dir); err != nil || !s.IsDir() {
			t.Errorf("list.go names %s, which is no folder", p)
		}
	}
	for _, u := range unraced {
		if u.why == "" {
			t.Errorf("list.go does not say why make test plays %s without the race detector", u.pattern)
		}
	}
}

func TestSplit(t *testing.T) {
	plain, raced := split([]string{".", "./dlq", "./cmd/onceq", "./dedupe/pgstore", "./dedupe", "./internal/tests/matrix", "./examples", "./dedupe/dynamostore"})
	if want := []string{"./dedupe/dynamostore", "./dedupe/pgstore", "./cmd/onceq", "./examples"}; !slices.Equal(plain, want) {
		t.Errorf("unraced %q, want %q", plain, want)
	}
	if want := []string{"./internal/tests/matrix", ".", "./dlq", "./dedupe"}; !slices.Equal(raced, want) {
		t.Errorf("raced %q, want %q", raced, want)
	}
}

// TestRead: what one go test says of a package stays together beside another's, and each package's
// seconds are counted.
func TestRead(t *testing.T) {
	const said = "--- FAIL: TestA (0.00s)\n    a_test.go:1: no\nFAIL\n" +
		"FAIL\tgithub.com/onceq/onceq/a\t1.5s\n" +
		"ok  \tgithub.com/onceq/onceq\t2.25s\n" +
		"ok  \tgithub.com/onceq/onceq/c\t(cached)\n" +
		"?   \tgithub.com/onceq/onceq/d\t[no test files]\n" +
		"FAIL\tgithub.com/onceq/onceq/e [build failed]\n" +
		"no end of line"
	var out writes
	r := &results{out: &out}
	if err := r.read(strings.NewReader(said), true); err != nil || strings.Join(out, "") != said || len(out) != 6 {
		t.Errorf("%v, wrote %q", err, out)
	}
	if !strings.HasPrefix(out[0], "--- FAIL") || !strings.HasSuffix(out[0], "1.5s\n") {
		t.Errorf("a failure came in pieces: %q", out)
	}
	const want = "make test: 3 s; 2 packages took 4 s together, and 1 had not changed since they passed\n" +
		"make test: longest: onceq 2, a 2\n" +
		"make test: the seed of what is drawn: ONCEQ_SEED=17\n"
	if got := r.tell("test", "17", 3*time.Second); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

type writes []string

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, string(b))
	return len(b), nil
}
