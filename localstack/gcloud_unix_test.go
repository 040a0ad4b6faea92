//go:build unix

package localstack

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFindEmulator(t *testing.T) {
	dir := t.TempDir()
	lib := func(root string, versions ...string) string {
		for _, v := range versions {
			script(t, filepath.Join(dir, root, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-"+v+"-all.jar"), "")
		}
		return filepath.Join(dir, root)
	}
	sdk, other, without := lib("sdk", "0.8.9", "0.8.20"), lib("other", "0.9.0"), lib("without")
	jar := func(root, version string) string {
		return filepath.Join(root, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-"+version+"-all.jar")
	}
	script(t, sdk+"/bin/gcloud", "exit 1\n")
	if err := os.MkdirAll(dir+"/links", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sdk+"/bin/gcloud", dir+"/links/gcloud"); err != nil {
		t.Fatal(err)
	}
	says := func(name, root string) string {
		return script(t, dir+"/"+name+"/gcloud", `test "$*" = "info --format=value(installation.sdk_root)" && echo `+root+"\n")
	}
	places := gcloudPlaces
	t.Cleanup(func() { gcloudPlaces = places })
	for _, c := range []struct {
		name, env, path, place string
		want, version, why     string
	}{
		{name: "the folder of the one in PATH", path: dir + "/links", place: other, want: jar(sdk, "0.8.20"), version: "0.8.20"},
		{name: "where installers put it", path: dir, place: other, want: jar(other, "0.9.0"), version: "0.9.0"},
		{name: "where it says", path: filepath.Dir(says("wrapped", sdk)), place: dir, want: jar(sdk, "0.8.20"), version: "0.8.20"},
		{name: "named", env: says("named", other), path: dir + "/links", place: sdk, want: jar(other, "0.9.0"), version: "0.9.0"},
		{name: "named in vain", env: dir + "/none", path: dir + "/links", place: sdk, why: "no Google Cloud CLI " + dir + "/none"},
		{name: "without the emulator", env: says("bare", without), place: sdk, why: "the Google Cloud CLI in " + without + " has no Pub/Sub emulator"},
		{name: "it fails", env: script(t, dir+"/broken/gcloud", "echo broken >&2; exit 1\n"), why: "/broken/gcloud does not run: exit status 1: broken"},
		{name: "it says nothing", env: says("silent", ""), why: "the Google Cloud CLI in  has no Pub/Sub emulator"},
		{name: "none", path: dir, place: dir, why: "no Google Cloud CLI in PATH or where installers put it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(gcloudEnv, c.env)
			t.Setenv("PATH", c.path+":/usr/bin:/bin")
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			gcloudPlaces = []string{c.place}
			got, err := pubSubEmulator.find(t.Context())
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("%+v, %v, want none: %s", got, err, c.why)
				}
				return
			}
			if err != nil || got.path != c.want || got.version != c.version {
				t.Errorf("%+v, %v, want %s %s", got, err, c.version, c.want)
			}
		})
	}
}

// TestPortTaken: a program that takes the port first is not believed, and an emulator that
// ends because of it is told from one that does not answer.
func TestPortTaken(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "port")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		emulator *emulator
		does     string
		ended    bool
		why      string
	}{
		{"it ends", &pubSubEmulator, "echo Address already in use; exit 1", true, "Address already in use"},
		{"it hangs", &pubSubEmulator, "echo Server started, listening on 1; exec sleep 60", false, "has not said that it listens"},
		{"Firestore's hangs", &firestoreEmulator, "echo API endpoint: http://127.0.0.1:1; exec sleep 60", false, "has not said that it listens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken := make(chan error, 1)
			go func() {
				port, err := os.ReadFile(fifo)
				if err == nil {
					err = pretend(t, "127.0.0.1:"+strings.TrimSpace(string(port)))
				}
				taken <- err
			}()
			s := &site{dir: t.TempDir()}
			defer s.close()
			program := script(t, filepath.Join(dir, c.name), `for a; do case $a in --port=*) echo "${a#*=}" >`+fifo+";; esac; done\n"+c.does+"\n")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			addr, ended, err := s.serveEmulator(ctx, c.emulator, java{path: program}, emulatorJar{path: "x.jar"})
			if err == nil || ended != c.ended || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%q, %v, %v", addr, ended, err)
			}
			if err := <-taken; err != nil {
				t.Error(err)
			}
		})
	}
}

// pretend answers at the address as Google's emulator does.
func pretend(t *testing.T, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "Ok")
			return
		}
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(make([]byte, 5))
		w.Header().Set("Grpc-Status", "0")
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return nil
}
