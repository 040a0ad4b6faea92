//go:build unix

package localstack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/onceq/onceq/internal/testserver"
)

// This file owns what runs on Java: it finds a Java, and has Maven get jars and checks them.
// dynamodb_host_unix.go calls it, in the guard's process and in one goroutine, so nothing is
// locked. cache_unix.go keeps the jars for later runs.

const (
	// javaEnv names the Java to use; then no other is looked for.
	javaEnv = "ONCEQ_JAVA"
	// mavenEnv names the Maven to fetch with.
	mavenEnv = "ONCEQ_MAVEN"
)

// javaPlaces are where packages put Java, outside PATH.
var javaPlaces = []string{
	"/usr/lib/jvm/*/bin/java",                                              // Debian, Fedora, Alpine
	"/opt/homebrew/opt/openjdk*/bin/java",                                  // Homebrew
	"/usr/local/opt/openjdk*/bin/java",                                     // Homebrew on Intel
	"/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",           // installers for macOS
	filepath.Join(os.Getenv("HOME"), ".sdkman/candidates/java/*/bin/java"), // SDKMAN
}

// A java is a program that runs jars.
type java struct {
	path, home string
	version    int // 17
}

var javaSays = regexp.MustCompile(`(?m)^\s*java\.(home|specification\.version) = (.*)$`)

// findJava looks for a Java that is not older: that of JAVA_HOME, then that of PATH, then those
// that packages have put somewhere.
func findJava(ctx context.Context, oldest int) (j java, err error) {
	names := []string{"java"}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		names = []string{filepath.Join(home, "bin", "java"), "java"}
	}
	for _, pattern := range javaPlaces {
		more, err := filepath.Glob(pattern)
		if err != nil {
			return j, err
		}
		names = append(names, more...)
	}
	if name := os.Getenv(javaEnv); name != "" {
		names = []string{name}
	}
	var why []string
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// it tells of itself as of an error
		out, err := tool(ctx, "", "/bin/sh", "-c", `exec "$0" -XX:-UsePerfData -XshowSettings:properties -version 2>&1`, path)
		if err != nil {
			// such as macOS's own, which only says where to get one
			why = append(why, testserver.OneLine(fmt.Errorf("%s does not run: %w", name, err)))
			continue
		}
		j = java{path: path}
		for _, m := range javaSays.FindAllStringSubmatch(string(out), -1) {
			if m[1] == "home" {
				j.home = m[2]
			} else {
				j.version, _ = strconv.Atoi(m[2]) // 1.8 is older
			}
		}
		if j.version >= oldest {
			return j, nil
		}
		why = append(why, name+" is older")
	}
	if len(why) == 0 {
		why = []string{"no " + cmp.Or(os.Getenv(javaEnv), "java in PATH or where packages put it")}
	}
	return java{}, fmt.Errorf("no Java %d or later (%s)", oldest, strings.Join(why, "; "))
}

// jars are what Maven gets for a project file, and the sums of what it must have got: lines of
// sha256sum's.
type jars struct{ name, pom, sums string }

// folder returns a folder with the jars. What was in the cache is checked again, because it may
// have come from elsewhere, such as the cache of a CI system. If it is not what it was, it is
// fetched anew.
func (w jars) folder(ctx context.Context, s *site, j java, again bool) (dir string, cached bool, err error) {
	key := sha256.Sum256([]byte(w.pom + "\n" + w.sums))
	get := func(again bool) (string, bool, error) {
		return s.cached(ctx, fmt.Sprintf("%s-%x", w.name, key[:8]), again, func(dir string) error {
			return w.fetch(ctx, j, dir, s.dir)
		})
	}
	dir, cached, err = get(again)
	if err == nil && cached && w.check(dir) != nil {
		return get(true)
	}
	return dir, cached, err
}

// copyDependencies is the part of Maven that puts a project's jars into a folder.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// fetch has Maven get the jars, from where the user's settings say, and checks them. None of them
// has run before that. Maven's own plugin has. Maven compares that with the sums that lie beside it
// in the repository.
func (w jars) fetch(ctx context.Context, j java, dir, tmp string) error {
	mvn, err := exec.LookPath(cmp.Or(os.Getenv(mavenEnv), "mvn"))
	if err != nil {
		return fmt.Errorf("no Maven to fetch it with: %w", err)
	}
	// A repository of its own: Maven's is not made for several processes at a time, and these are
	// needed once.
	work, err := os.MkdirTemp(tmp, "maven-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	file := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(file, []byte(w.pom), 0o600); err != nil {
		return err
	}
	// Maven looks for a folder .mvn from here up to the root, and runs what it finds there. Anybody
	// may make one in /tmp.
	if err := os.Mkdir(filepath.Join(work, ".mvn"), 0o700); err != nil {
		return err
	}
	_, err = tool(ctx, work, "env", "JAVA_HOME="+j.home, "MAVEN_BASEDIR="+work, "MAVEN_SKIP_RC=1", mvn,
		"--batch-mode", "--quiet", "--strict-checksums", "--file", file,
		"-Dmaven.repo.local="+filepath.Join(work, "repository"), "-DoutputDirectory="+dir, copyDependencies)
	if err != nil {
		return fmt.Errorf("%s: %w", mvn, err)
	}
	return w.check(dir)
}

// check compares a folder with the sums.
func (w jars) check(dir string) error {
	want := map[string]string{}
	for line := range strings.Lines(w.sums) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("%s: %q is no line of sums", w.name, line)
		}
		want[name] = sum
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(dir, e.Name()))
		if err == nil && want[e.Name()] != sum {
			err = fmt.Errorf("%s is not what %s.sha256 lists, but %s", e.Name(), w.name, sum)
		}
		if err != nil {
			return err
		}
		delete(want, e.Name())
	}
	for name := range want {
		return fmt.Errorf("%s has not come", name)
	}
	return nil
}

func sumOf(name string) (sum string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
