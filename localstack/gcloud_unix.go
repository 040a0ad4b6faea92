//go:build unix

package localstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/testserver"
)

// This file owns the emulators of an installed Google Cloud CLI, Pub/Sub's and Firestore's: it
// finds the jar, and runs it. It is called in the guard's process and in one goroutine, so nothing
// is locked. java_unix.go finds the Java.

// gcloudEnv names the Google Cloud CLI to ask for its folder; then no other is looked for.
const gcloudEnv = "ONCEQ_GCLOUD"

// An emulator is one of the CLI's.
type emulator struct {
	name      string // "Pub/Sub"
	component string // what gcloud components install takes
	jars      string // where it lies in the CLI's folder
	oldest    int    // the oldest Java that it is for
	// run are Java's arguments that run the jar, before --host and --port.
	run func(jar string) []string
	// listens is what it says, before its port, once it listens.
	listens string
	// logging keeps what it says of its port, and no call.
	logging string
	// serving waits for the first of the addresses where it answers.
	serving func(ctx context.Context, addrs []string, limit time.Duration) (string, error)
}

var pubSubEmulator = emulator{
	name: "Pub/Sub", component: "pubsub-emulator", jars: "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar", oldest: 11,
	run:     func(jar string) []string { return []string{"-jar", jar} },
	listens: "Server started, listening on ",
	logging: "handlers = java.util.logging.ConsoleHandler\n.level = WARNING\ncom.google.cloud.pubsub.testing.v1.Main.level = INFO\n",
	serving: servingPubSub,
}

var firestoreEmulator = emulator{
	name: "Firestore", component: "cloud-firestore-emulator", jars: "platform/cloud-firestore-emulator/cloud-firestore-emulator*.jar", oldest: 17,
	run: func(jar string) []string {
		return []string{"-Duser.language=en", "-cp", jar, "com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start"}
	},
	listens: "API endpoint: http://127.0.0.1:",
	logging: "handlers = java.util.logging.ConsoleHandler\n.level = WARNING\n",
	serving: servingFirestore,
}

// gcloudPlaces are where installers put the CLI.
var gcloudPlaces = []string{
	"/usr/lib/google-cloud-sdk",      // Debian and Fedora
	"/usr/lib64/google-cloud-sdk",    // Fedora
	"/snap/google-cloud-cli/current", // snap
	"/snap/google-cloud-sdk/current",
	"/opt/homebrew/share/google-cloud-sdk", // Homebrew
	"/usr/local/share/google-cloud-sdk",    // Homebrew on Intel
	"/opt/google-cloud-sdk",
	filepath.Join(os.Getenv("HOME"), "google-cloud-sdk"), // the archive
}

// An emulatorJar is a program and its version, "0.8.20".
type emulatorJar struct{ path, version string }

// find looks for the emulator: in the folder of the CLI that is in PATH, then where
// installers put one, and then where the CLI says that it is, because its answer takes seconds.
func (e *emulator) find(ctx context.Context) (emulatorJar, error) {
	named := os.Getenv(gcloudEnv)
	path, err := exec.LookPath(cmp.Or(named, "gcloud"))
	if err != nil && named != "" {
		return emulatorJar{}, fmt.Errorf("no Google Cloud CLI %s", named)
	}
	if named == "" {
		places := gcloudPlaces
		if real, linkErr := filepath.EvalSymlinks(path); path != "" && linkErr == nil {
			places = append([]string{filepath.Dir(filepath.Dir(real))}, places...)
		}
		for _, root := range places {
			if jar, ok := e.jarIn(root); ok {
				return jar, nil
			}
		}
	}
	if err != nil {
		return emulatorJar{}, errors.New("no Google Cloud CLI in PATH or where installers put it")
	}
	out, err := tool(ctx, "", path, "info", "--format=value(installation.sdk_root)")
	if err != nil {
		return emulatorJar{}, errors.New(testserver.OneLine(fmt.Errorf("%s does not run: %w", path, err)))
	}
	root := strings.TrimSpace(string(out))
	if jar, ok := e.jarIn(root); ok {
		return jar, nil
	}
	return emulatorJar{}, fmt.Errorf("the Google Cloud CLI in %s has no %s emulator: gcloud components install %s", root, e.name, e.component)
}

// jarIn returns the newest emulator in the CLI's folder.
func (e *emulator) jarIn(root string) (jar emulatorJar, ok bool) {
	if !filepath.IsAbs(root) {
		return jar, false
	}
	paths, err := filepath.Glob(filepath.Join(root, e.jars))
	if err != nil || len(paths) == 0 {
		return jar, false
	}
	path := slices.MaxFunc(paths, func(a, b string) int {
		return slices.Compare(versionIn(a), versionIn(b))
	})
	var words []string
	for _, n := range versionIn(path) {
		words = append(words, strconv.Itoa(n))
	}
	return emulatorJar{path, strings.Join(words, ".")}, true
}

// versionIn returns the numbers in a file's name.
func versionIn(path string) (version []int) {
	for _, word := range numbers.FindAllString(filepath.Base(path), -1) {
		n, _ := strconv.Atoi(word)
		version = append(version, n)
	}
	return version
}

// portTries is how often the emulator is started while another program takes its port.
const portTries = 3

// startPubSub runs Pub/Sub's emulator.
func startPubSub(ctx context.Context, s *site) (addr string, err error) {
	addr, jar, _, err := s.startEmulator(ctx, &pubSubEmulator)
	s.version = jar.version
	return addr, err
}

// startFirestore runs Firestore's emulator, whose file does not tell its version.
func startFirestore(ctx context.Context, s *site) (addr string, err error) {
	addr, jar, j, err := s.startEmulator(ctx, &firestoreEmulator)
	if err != nil {
		return "", err
	}
	out, err := tool(ctx, s.dir, j.path, append(firestoreEmulator.run(jar.path), "--version")...)
	if err != nil {
		return "", err
	}
	s.version = firestoreVersion.FindString(string(out))
	return addr, nil
}

var firestoreVersion = regexp.MustCompile(`\d+(\.\d+)+`)

// startEmulator runs an emulator of the CLI.
func (s *site) startEmulator(ctx context.Context, e *emulator) (addr string, jar emulatorJar, j java, err error) {
	if jar, err = e.find(ctx); err != nil {
		return "", jar, j, err
	}
	if j, err = findJava(ctx, e.oldest); err != nil {
		return "", jar, j, err
	}
	for range portTries {
		var ended bool
		if addr, ended, err = s.serveEmulator(ctx, e, j, jar); err == nil || !ended || ctx.Err() != nil {
			break
		}
		s.close()
	}
	return addr, jar, j, err
}

// serveEmulator starts the server and waits until it answers. It tells whether the server ended by
// itself.
func (s *site) serveEmulator(ctx context.Context, e *emulator, j java, jar emulatorJar) (addr string, ended bool, err error) {
	// It cannot inherit a socket, and cannot say which port it chose. So it is told one that was
	// free.
	socket, addr, err := listen(ctx)
	if err != nil {
		return "", false, err
	}
	if err := socket.Close(); err != nil {
		return "", false, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false, err
	}
	args := append([]string{
		// what starts in 2 s and does well with two processors that the tests need, too
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m",
		// all that it writes
		"-Djava.io.tmpdir=" + s.dir, "-Duser.home=" + s.dir, "-XX:-UsePerfData",
		// it logs each call
		"-Djava.util.logging.config.file=" + filepath.Join(s.dir, "logging.properties"),
	}, append(e.run(jar.path), "--host=127.0.0.1", "--port="+port)...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), j.path, args...)
	if err := os.WriteFile(filepath.Join(s.dir, "logging.properties"), []byte(e.logging), 0o600); err != nil {
		return "", false, err
	}
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir, "TMPDIR=" + s.dir, "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := s.run(cmd, syscall.SIGKILL) // it has nothing to save
	if err != nil {
		return "", false, err
	}
	return s.until(ctx, p, func(ctx context.Context) (string, error) {
		return firstOf(ctx, []string{addr}, 90*time.Second, func(ctx context.Context, addr string) error {
			// Another program that took the port meanwhile is not believed: the emulator itself
			// must have said that it has it.
			text, err := os.ReadFile(p.log.Name())
			if err == nil && !strings.Contains(string(text), e.listens+port) {
				err = errors.New("the emulator has not said that it listens")
			}
			if err != nil {
				return err
			}
			_, err = e.serving(ctx, []string{addr}, 5*time.Second)
			return err
		})
	})
}
