package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// tags are the names under which Go looks for the versions of modules.
func TestTags(t *testing.T) {
	for _, c := range []struct {
		dir, tag string
		released bool
	}{
		{".", "v0.1.0", true},
		{"localstack", "localstack/v0.1.0", true},
		{"cmd/onceq", "cmd/onceq/v0.1.0", true},
		{"adapters/gcppubsub", "adapters/gcppubsub/v0.1.0", true},
		{"internal/tests", "internal/tests/v0.1.0", false},
	} {
		m := module{dir: c.dir}
		if got := m.tag("v0.1.0"); got != c.tag || m.released() != c.released {
			t.Errorf("%s: %s, released %v; want %s, %v", c.dir, got, m.released(), c.tag, c.released)
		}
	}
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"v0.1.0": true, "v1.12.3-rc.1": true, "0.1.0": false, "v0.1": false, "v01.0.0": false, "v0.1.0 ": false,
	} {
		if versions.MatchString(version) != ok {
			t.Errorf("%q is taken for a version: %v", version, !ok)
		}
	}
}

// TestTree: modules come after those that they use, and a module's archive has its own files, the
// repository's license, and nothing that git does not have.
func TestTree(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{
		"go.mod": "module x.test/m\n", "LICENSE": "free", "a.go": "package m\n", "untracked.go": "package m\n",
		"a/go.mod":   "module x.test/m/a\nrequire x.test/m/b v0.0.0\nrequire x.test/m v0.0.0\nreplace x.test/m => ../\nreplace x.test/m/b => ../b\n",
		"a/sub/s.go": "package sub\n",
		"b/go.mod":   "module x.test/m/b\nrequire x.test/m v0.0.0\nreplace x.test/m => ../\n",
		"b/LICENSE":  "its own",
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"rm", "--quiet", "--cached", "untracked.go"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	tr := must.Get(newTree(t.Context(), root, "v0.1.0"))
	defer tr.forget()
	want := map[string][]string{
		".": {"LICENSE", "a.go", "go.mod"}, "b": {"LICENSE", "go.mod"}, "a": {"LICENSE", "go.mod", "sub/s.go"},
	}
	var order []string
	for _, m := range tr.modules {
		order = append(order, m.dir)
		name := filepath.Join(tr.proxy, "m.zip")
		if err := tr.zip(m, name); err != nil {
			t.Fatal(err)
		}
		z := must.Get(zip.OpenReader(name))
		var got []string
		for _, f := range z.File {
			got = append(got, f.Name[len(m.path+"@v0.1.0/"):])
		}
		slices.Sort(got)
		if !slices.Equal(got, want[m.dir]) {
			t.Errorf("%s: %q, want %q", m.dir, got, want[m.dir])
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(order, []string{".", "b", "a"}) {
		t.Errorf("the order is %q", order)
	}
	if a := tr.modules[2]; len(a.replaced) != 2 || a.replaced[1] != (replacement{"x.test/m/b", "../b"}) {
		t.Errorf("a replaces %v", a.replaced)
	}
}
