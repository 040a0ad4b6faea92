package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

// The bill lists each module that is in a binary, with its version. The test's own binary is one.
func TestBill(t *testing.T) {
	self := must.Get(os.Executable())
	binary := must.Get(os.ReadFile(self))
	b, err := bill(binary)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range got.Components {
		if c.Name == "modernc.org/sqlite" && c.PURL == "pkg:golang/modernc.org/sqlite@"+c.Version && got.BOMFormat == "CycloneDX" {
			return
		}
	}
	t.Errorf("SQLite is not in %s", b)
}

// Two archives of the same files are the same bytes, and what is packed comes out again.
func TestArchives(t *testing.T) {
	files := []file{{"onceq", []byte("binary"), 0o755}, {"LICENSE", []byte("free"), 0o644}}
	for _, pack := range []func([]file) ([]byte, error){tarred, zipped} {
		one, err := pack(files)
		if err != nil {
			t.Fatal(err)
		}
		two, err := pack(files)
		if err != nil || string(one) != string(two) || len(one) == 0 {
			t.Errorf("two archives of the same files differ: %v", err)
		}
	}
	dir := t.TempDir()
	packed, err := tarred(files)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "onceq.tar.gz")
	if err := os.WriteFile(name, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := unpack(name, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(program); err != nil || string(got) != "binary" {
		t.Errorf("%q, %v", got, err)
	}
}
