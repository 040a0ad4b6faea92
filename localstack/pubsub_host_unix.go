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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/testserver"
)

// This file owns the Pub/Sub emulator of an installed Google Cloud CLI: it finds the jar, and runs
// it. It is called in the guard's process and in one goroutine, so nothing is locked. java_unix.go
// finds the Java.

const (
	// gcloudEnv names the Google Cloud CLI to ask for its folder; then no other is looked for.
	gcloudEnv = "ONCEQ_GCLOUD"
	// pubSubJava is the oldest that the emulator is for.
	pubSubJava = 11
	// jarPattern is where the emulator lies in the CLI's folder.
	jarPattern = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
)

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

// findPubSub looks for the emulator: in the folder of the CLI that is in PATH, then where
// installers put one, and then where the CLI says that it is, because its answer takes seconds.
func findPubSub(ctx context.Context) (emulatorJar, error) {
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
			if jar, ok := jarIn(root); ok {
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
	if jar, ok := jarIn(root); ok {
		return jar, nil
	}
	return emulatorJar{}, fmt.Errorf("the Google Cloud CLI in %s has no Pub/Sub emulator: gcloud components install pubsub-emulator", root)
}

// jarIn returns the newest emulator in the CLI's folder.
func jarIn(root string) (jar emulatorJar, ok bool) {
	if !filepath.IsAbs(root) {
		return jar, false
	}
	paths, err := filepath.Glob(filepath.Join(root, jarPattern))
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

// startPubSub runs the emulator.
func startPubSub(ctx context.Context, s *site) (addr string, err error) {
	jar, err := findPubSub(ctx)
	if err != nil {
		return "", err
	}
	j, err := findJava(ctx, pubSubJava)
	if err != nil {
		return "", err
	}
	for range portTries {
		var ended bool
		if addr, ended, err = s.servePubSub(ctx, j, jar); err == nil || !ended || ctx.Err() != nil {
			break
		}
		s.close()
	}
	s.version = jar.version
	return addr, err
}

// servePubSub starts the server and waits until it answers. It tells whether the server ended by
// itself.
func (s *site) servePubSub(ctx context.Context, j java, jar emulatorJar) (addr string, ended bool, err error) {
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
	cmd := exec.CommandContext(context.WithoutCancel(ctx), j.path,
		// what starts in 2 s and does well with two processors that the tests need, too
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m",
		// all that it writes
		"-Djava.io.tmpdir="+s.dir, "-Duser.home="+s.dir, "-XX:-UsePerfData",
		// it logs each call
		"-Djava.util.logging.config.file="+filepath.Join(s.dir, "logging.properties"),
		"-jar", jar.path, "--host=127.0.0.1", "--port="+port)
	if err := os.WriteFile(filepath.Join(s.dir, "logging.properties"), []byte(pubSubLogging), 0o600); err != nil {
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
			if err == nil && !strings.Contains(string(text), "Server started, listening on "+port) {
				err = errors.New("the emulator has not said that it listens")
			}
			if err != nil {
				return err
			}
			_, err = servingPubSub(ctx, []string{addr}, 5*time.Second)
			return err
		})
	})
}

// pubSubLogging keeps the line that says which port it has, and no call.
const pubSubLogging = `handlers = java.util.logging.ConsoleHandler
.level = WARNING
com.google.cloud.pubsub.testing.v1.Main.level = INFO
`
