package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// This file plays the users of a version that was just released: it compares sums, builds the
// modules as their tags have them, and builds programs and commands that take them. The rehearsal
// alone calls it, in one goroutine, so nothing is locked.

// A user is a program, or a test, of one who takes what was released.
type user struct{ name, file, text string }

// users name what they take under the library's path, which is written as onceq.example.
var users = []user{
	{"core", "main.go", `package main

import (
	"onceq.example"
	"onceq.example/adapters/membroker"
	"onceq.example/dedupe/memstore"
)

var _, _, _ = onceq.NewProcessor, membroker.New, memstore.New

func main() {}
`},
	{"queue and store", "main.go", `package main

import (
	"onceq.example/adapters/awssqs"
	"onceq.example/dedupe/pgstore"
)

var _, _ = awssqs.New, pgstore.New

func main() {}
`},
	{"Pub/Sub", "main.go", `package main

import (
	"onceq.example/adapters/gcppubsub"
	"onceq.example/adapters/gcppubsub/pubsubpush"
	"onceq.example/dedupe/memstore"
)

var _, _, _ = gcppubsub.New, pubsubpush.New, memstore.New

func main() {}
`},
	{"test with servers", "user_test.go", `package user

import (
	"testing"

	"onceq.example/localstack"
	"onceq.example/sqsfake"
)

func TestTaken(t *testing.T) { _, _ = localstack.Postgres, sqsfake.Start }
`},
}

// take takes a version as users would, from the repository at root, where its tag is checked out.
// It checks that each module has the sum that the others' go.sum say, needs nothing of the tree,
// and builds. Then it builds programs and commands.
func take(ctx context.Context, root, version, dir string) error {
	t, err := newTree(ctx, root, version)
	if err != nil {
		return err
	}
	defer t.forget()
	for _, m := range t.modules {
		if !m.released() {
			continue
		}
		if len(m.replaced) > 0 {
			return fmt.Errorf("%s is released with replacements: %v", m.path, m.replaced)
		}
		if err := t.publish(m); err != nil {
			return err
		}
	}
	for _, m := range t.modules {
		if !m.released() {
			continue
		}
		if err := t.sameSum(ctx, m, dir); err != nil {
			return err
		}
		// as it stands: whatever go would add to its files, we have forgotten
		readOnly := append(t.goEnv(), "GOFLAGS=-mod=readonly -modcacherw")
		if _, err := run(ctx, filepath.Join(root, m.dir), readOnly, "go", "build", "./..."); err != nil {
			return err
		}
		fmt.Println("built", m.path)
	}
	for _, u := range users {
		at := filepath.Join(dir, u.name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		text := strings.ReplaceAll(u.text, "onceq.example", library)
		if err := os.WriteFile(filepath.Join(at, u.file), []byte(text), 0o644); err != nil {
			return err
		}
		for _, args := range [][]string{{"mod", "init", "user.example/user"}, {"get", library + "@" + version}, {"mod", "tidy"}, {"vet", "./..."}} {
			if _, err := run(ctx, at, t.goEnv(), "go", args...); err != nil {
				return err
			}
		}
		fmt.Println("built a user's", u.name)
	}
	bin := filepath.Join(dir, "bin")
	for _, program := range []string{"cmd/sqsfake", "adapters/gcppubsub/cmd/pubsubfake", "cmd/onceq", "examples/first"} {
		// go install takes no module with a replacement
		at := path.Join(library, program) + "@" + version
		if _, err := run(ctx, dir, append(t.goEnv(), "GOBIN="+bin, "GOFLAGS=-modcacherw"), "go", "install", at); err != nil {
			return err
		}
		fmt.Println("installed", program)
	}
	return try(ctx, root, library, version, dir, t.goEnv())
}

// sameSum fails if the tag's sum is not the one in the go.sum files. It may differ, because these
// files were made before there was a tag.
func (t *tree) sameSum(ctx context.Context, m *module, dir string) (err error) {
	// a cache of its own: Go's keeps repositories as well, by their real names
	cache := filepath.Join(dir, "cache")
	direct := []string{
		"GOWORK=off", "GOPROXY=direct", "GONOSUMDB=" + t.modules[0].path, "GOMODCACHE=" + cache, "GOFLAGS=-modcacherw",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(t.root) + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + t.modules[0].path,
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cache)) }()
	sum := func(env []string) (string, error) {
		text, err := run(ctx, dir, env, "go", "mod", "download", "-json", m.path+"@"+t.version)
		if err != nil {
			return "", err
		}
		var got struct{ Sum string }
		return got.Sum, json.Unmarshal([]byte(text), &got)
	}
	fromTag, err := sum(direct)
	if err != nil {
		return err
	}
	fromProxy, err := sum(t.goEnv())
	if err != nil {
		return err
	}
	if fromTag != fromProxy || fromTag == "" {
		return fmt.Errorf("%s: the tag's sum is %s, and the go.sum files have %s", m.path, fromTag, fromProxy)
	}
	return nil
}
