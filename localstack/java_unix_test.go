//go:build unix

package localstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/testserver"
)

// script writes a program.
func script(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// says is a program that tells of itself as a Java does.
func says(version string) string {
	return "echo 'Property settings:' >&2\necho '    java.home = /home/of/" + version + "' >&2\n" +
		"echo '    java.specification.version = " + version + "' >&2\necho 'openjdk version \"" + version + ".0.1\"' >&2\n"
}

func TestFindJava(t *testing.T) {
	dir := t.TempDir()
	old, eight := script(t, dir+"/old/bin/java", says("11")), script(t, dir+"/eight/bin/java", says("1.8"))
	good := script(t, dir+"/good/bin/java", says("17"))
	script(t, dir+"/broken/bin/java", "echo get one >&2; exit 1\n")
	places := javaPlaces
	t.Cleanup(func() { javaPlaces = places })
	for _, c := range []struct {
		name, env, home, path, place string
		want, why                    string
	}{
		{name: "named", env: good, home: dir + "/old", want: good},
		{name: "the one that is named, or none", env: old, home: dir + "/good", path: dir + "/good/bin", why: "(" + old + " is older)"},
		{name: "named in vain", env: dir + "/none", why: "(no " + dir + "/none)"},
		{name: "JAVA_HOME", home: dir + "/good", path: dir + "/broken/bin", want: good},
		{name: "JAVA_HOME is older", home: dir + "/eight", path: dir + "/good/bin", want: good},
		{name: "PATH", path: dir + "/good/bin", place: old, want: good},
		{name: "PATH's does not run", path: dir + "/broken/bin", place: dir + "/*/bin/java", want: good},
		{name: "all are older", path: dir + "/old/bin", place: eight, why: "(java is older; " + eight + " is older)"},
		{name: "none", path: dir, why: "(no java in PATH or where packages put it)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(javaEnv, c.env)
			t.Setenv("JAVA_HOME", c.home)
			t.Setenv("PATH", c.path)
			javaPlaces = []string{c.place}
			j, err := findJava(t.Context(), 17)
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "no Java 17 or later "+c.why) {
					t.Errorf("%+v, %v, want none, as %s", j, err, c.why)
				}
				return
			}
			if err != nil || j.path != c.want || j.home != "/home/of/17" || j.version != 17 {
				t.Errorf("%+v, %v, want %s", j, err, c.want)
			}
		})
	}
}

func TestJars(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	// Somebody's own setting would lead elsewhere.
	t.Setenv("MAVEN_ARGS", "--offline")
	const sumOfA = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7" // of "a\n"
	s := &site{dir: t.TempDir()}
	// mvn has a Maven leave files, and tells whether it ran.
	mvn := func(leaves string) {
		script(t, bin+"/mvn", `
test -z "$MAVEN_ARGS" && test "$JAVA_HOME" = /home/of/17 && test "$MAVEN_SKIP_RC" = 1 || { echo settings; exit 1; }
for a; do case $a in
	-DoutputDirectory=*) dir=${a#*=};; --strict-checksums) strict=yes;; --file) pom=next;; *) test "$pom" != next || pom=$a;;
esac; done
test "$strict" = yes || { echo "any sums do"; exit 1; }
test "$(cat "$pom")" = "<project/>" || { echo "no project in $pom"; exit 1; }
test "$MAVEN_BASEDIR" = "$(dirname "$pom")" && rmdir "$MAVEN_BASEDIR/.mvn" || { echo "others may say what runs"; exit 1; }
cd "$dir" && `+leaves+"\n")
		t.Setenv(mavenEnv, bin+"/mvn")
	}
	get := func(w jars, again bool) (string, bool, error) {
		return w.folder(t.Context(), s, java{path: "java", home: "/home/of/17", version: 17}, again)
	}
	good := jars{name: "test-jars", pom: "<project/>", sums: sumOfA + "  a.jar\n"}
	for _, c := range []struct {
		name, leaves, why string
		sums              string
	}{
		{"another file", "echo b >a.jar", "a.jar is not what test-jars.sha256 lists, but ", good.sums},
		{"one too many", "echo a >a.jar; echo b >b.jar", "b.jar is not what test-jars.sha256 lists, but ", good.sums},
		{"a folder", "echo a >a.jar; mkdir b.jar", "b.jar", good.sums},
		{"one missing", "true", "a.jar has not come", good.sums},
		{"nothing asked for", "echo a >a.jar", "a.jar is not what", ""},
		{"no list", "echo a >a.jar", "is no line of sums", "a.jar\n"},
		{"Maven fails", "echo a >a.jar; echo no network; exit 1", "no network", good.sums},
	} {
		mvn(c.leaves)
		w := good
		w.sums = c.sums
		if dir, _, err := get(w, false); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %s, %v, want %q", c.name, dir, err, c.why)
		}
		if left := folders(t, cache); len(left) > 0 {
			t.Errorf("%s: it has left %v", c.name, left)
		}
	}
	t.Setenv(mavenEnv, bin+"/none")
	if _, _, err := get(good, false); err == nil || !strings.Contains(err.Error(), "no Maven to fetch it with") {
		t.Errorf("without Maven: %v", err)
	}

	mvn("echo a >a.jar")
	dir, cached, err := get(good, false)
	if err != nil || cached {
		t.Fatalf("the first time: cached %v, %v", cached, err)
	}
	if text, err := os.ReadFile(dir + "/a.jar"); string(text) != "a\n" || err != nil {
		t.Errorf("it is %q, %v", text, err)
	}
	t.Setenv(mavenEnv, bin+"/none")
	if same, cached, err := get(good, false); same != dir || !cached || err != nil {
		t.Errorf("the second time, without Maven: %s, cached %v, %v", same, cached, err)
	}
	mvn("echo a >a.jar")
	if err := os.WriteFile(dir+"/a.jar", []byte("b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if same, cached, err := get(good, false); same != dir || cached || err != nil || good.check(dir) != nil {
		t.Errorf("with another file in the cache: %s, cached %v, %v, %v", same, cached, err, good.check(dir))
	}
	if err := os.Remove(dir + "/a.jar"); err != nil {
		t.Fatal(err)
	}
	if same, cached, err := get(good, true); same != dir || cached || err != nil || good.check(dir) != nil {
		t.Errorf("again: %s, cached %v, %v, %v", same, cached, err, good.check(dir))
	}
	if left := folders(t, cache); len(left) != 1 {
		t.Errorf("the cache has %v, want one folder", left)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("Maven's own files are left: %v, %v", entries, err)
	}
}

// TestMavenTakesNothingFromAbove: anybody may put a folder .mvn into the system's folder for
// temporary files, and Maven would run what it says.
func TestMavenTakesNothingFromAbove(t *testing.T) {
	j, err := findJava(t.Context(), dynamoDBJava)
	if err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath(cmp.Or(os.Getenv(mavenEnv), "mvn")); err != nil {
		t.Skip(err)
	}
	shared := t.TempDir()
	theirs, ours := filepath.Join(shared, ".mvn"), filepath.Join(shared, "ours")
	if err := errors.Join(os.Mkdir(theirs, 0o755), os.Mkdir(ours, 0o711)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"jvm.config", "maven.config"} {
		if err := os.WriteFile(filepath.Join(theirs, file), []byte("--option-of-theirs\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It is no project, which Maven says before it asks anybody for anything.
	err = jars{name: "test-jars", pom: "<project/>"}.fetch(t.Context(), j, t.TempDir(), ours)
	if err == nil || strings.Contains(err.Error(), "theirs") || !strings.Contains(err.Error(), "modelVersion") {
		t.Errorf("want what Maven says of the project: %v", err)
	}
}

// TestServeCached: what is broken in the cache is fetched again, once.
func TestServeCached(t *testing.T) {
	s := &site{dir: t.TempDir()}
	var got []string
	for _, c := range []struct {
		name        string
		cached      bool
		ends        int // so many starts end by themselves
		want, calls string
	}{
		{"at once", true, 0, "url", "get false serve"},
		{"a cache that is broken", true, 1, "url", "get false serve get true serve"},
		{"a server that does not start", true, 9, "", "get false serve get true serve"},
		{"one just fetched that does not start", false, 9, "", "get false serve"},
	} {
		got = nil
		ends := c.ends
		url, err := s.serveCached(t.Context(), func(again bool) (string, bool, error) {
			got = append(got, fmt.Sprint("get ", again))
			return "dir", c.cached && !again, nil
		}, func(dir string) (string, bool, error) {
			got = append(got, "serve")
			if ends--; ends >= 0 {
				return "", true, fmt.Errorf("%s ended", dir)
			}
			return "url", false, nil
		})
		if url != c.want || (err == nil) != (c.want != "") || strings.Join(got, " ") != c.calls {
			t.Errorf("%s: %q, %v after %q", c.name, url, err, got)
		}
	}
}

// TestVersionOfWhatWorks: a way that failed leaves nothing of itself to the next.
func TestVersionOfWhatWorks(t *testing.T) {
	b := backend{Backend: testserver.Backend{Name: "test", Version: func(_ context.Context, url, _ string) (string, error) { return "Server at " + url, nil }}}
	s := &site{dir: t.TempDir()}
	e := b.start(t.Context(), s, []way{
		{how: "first", start: func(_ context.Context, s *site) (string, error) {
			s.version = "1"
			return "", errors.New("did not start")
		}},
		{how: "second", start: func(context.Context, *site) (string, error) { return "b", nil }},
	})
	if e.Version != "Server at b" || e.How != "second" {
		t.Errorf("%+v", e)
	}
	e = b.start(t.Context(), s, []way{{how: "first", start: func(_ context.Context, s *site) (string, error) {
		s.version = "1"
		return "a", nil
	}}})
	if e.Version != "Server at a 1" {
		t.Errorf("%+v", e)
	}
}
