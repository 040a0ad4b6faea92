// Release makes the commits and the tags of a version. All modules that users take are released
// together, at one version:
//
//	go run ./internal/release v0.1.0      makes two commits and the tags; it pushes nothing
//	go run ./internal/release -rehearse   does the same in a copy of the tree, and takes what came of it as users would
//	go run ./internal/release -binaries DIR v0.1.0
//	                                      packs the command of a version that the module proxy has, for each system
//
// Between releases the modules that need the library carry a replace that leads to the tree, so
// that each is checked with the tree's own code, with go.work or without. The first commit, which
// is tagged, has none: go install refuses a command whose module has one. The second brings them
// back. The first one gives what CHANGELOG.md has under "Unreleased" the version and the day, in
// UTC.
//
// What a tag will hold is known before it is pushed, and so are its sums: each module is put
// into a module proxy made of files, and the next one's go.sum is made with that. docs/release.md
// says what a release is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// This file owns the program's two acts: a release, and its rehearsal in a copy of the tree. One
// goroutine runs it, so nothing is locked.

func main() {
	rehearse := flag.Bool("rehearse", false, "do it in a copy, as a rehearsal")
	dist := flag.String("binaries", "", "pack the command of the version into this folder, with its sums and a queue to try it on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *rehearse && *dist == "" && flag.NArg() == 0:
		err = rehearsal(ctx, ".")
	case !*rehearse && *dist != "" && flag.NArg() == 1 && versions.MatchString(flag.Arg(0)):
		err = errors.Join(binaries(ctx, ".", library, flag.Arg(0), *dist, []string{"GOWORK=off"}, targets), fill(ctx, *dist))
	case !*rehearse && *dist == "" && flag.NArg() == 1:
		err = release(ctx, ".", flag.Arg(0))
	default:
		err = errors.New("want a version, such as v0.1.0, -binaries DIR and a version, or -rehearse")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// library is the path of the first module. The others lie below it.
const library = "github.com/onceq/onceq"

// versions are those that a release may have.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// release commits and tags a version in the repository at root.
func release(ctx context.Context, root, version string) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("%q is no version such as v0.1.0", version)
	}
	if changed, err := run(ctx, root, nil, "git", "status", "--porcelain"); err != nil || changed != "" {
		return fmt.Errorf("the tree is not as it was committed: %w", errors.Join(err, errors.New(changed)))
	}
	t, err := newTree(ctx, root, version)
	if err != nil {
		return err
	}
	defer t.forget()
	for _, m := range t.modules {
		if !m.released() {
			continue
		}
		if old, err := run(ctx, root, nil, "git", "tag", "--list", m.tag(version)); err != nil || old != "" {
			return fmt.Errorf("the tag %s is there already: %w", m.tag(version), errors.Join(err, errors.New("a version is never made twice")))
		}
	}
	if err := dateChangelog(root, version, time.Now()); err != nil {
		return err
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := commit(ctx, root, "release: "+version); err != nil {
		return err
	}
	for _, m := range t.modules {
		if !m.released() {
			continue
		}
		if _, err := run(ctx, root, nil, "git", "tag", "--annotate", "--message", m.path+" "+version, m.tag(version)); err != nil {
			return err
		}
		fmt.Println("tagged", m.tag(version))
	}
	if err := errors.Join(reopenChangelog(root, version), t.reopen(ctx)); err != nil {
		return err
	}
	if err := commit(ctx, root, "release: back to the tree's own modules"); err != nil {
		return err
	}
	fmt.Println("Push the commits and the tags together: git push --atomic --follow-tags")
	return nil
}

// commit commits what has changed. A first release of a tree with one module changes nothing.
func commit(ctx context.Context, root, subject string) error {
	if _, err := run(ctx, root, nil, "git", "add", "--all"); err != nil {
		return err
	}
	_, err := run(ctx, root, nil, "git", "commit", "--allow-empty", "--quiet", "--message", subject)
	return err
}

// rehearsal releases a copy of the tree, and takes what came of it as users would.
func rehearsal(ctx context.Context, root string) (err error) {
	dir, err := os.MkdirTemp("", "onceq-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	repo := filepath.Join(dir, "repo")
	if err := copyTree(ctx, root, repo); err != nil {
		return err
	}
	git := []string{
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=rehearsal", "GIT_AUTHOR_EMAIL=rehearsal@localhost", "GIT_COMMITTER_NAME=rehearsal", "GIT_COMMITTER_EMAIL=rehearsal@localhost",
	}
	for _, set := range git {
		name, value, _ := strings.Cut(set, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message", "the tree"}} {
		if _, err := run(ctx, repo, nil, "git", args...); err != nil {
			return err
		}
	}
	// never a version that anybody has had: what Go keeps of it is removed afterwards
	version := fmt.Sprintf("v0.0.0-rehearsal.%d", time.Now().UnixNano())
	if err := release(ctx, repo, version); err != nil {
		return err
	}
	if _, err := run(ctx, repo, nil, "git", "checkout", "--quiet", "--detach", version); err != nil {
		return err
	}
	return take(ctx, repo, version, filepath.Join(dir, "users"))
}
