package localstack

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

// TestContainersArePublishedOnLoopback reads what a Docker is asked to publish.
func TestContainersArePublishedOnLoopback(t *testing.T) {
	type created struct {
		HostConfig struct {
			PortBindings map[string][]struct{ HostIp string } // as Docker spells it
		}
	}
	asked := make(chan created, 1)
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Api-Version", "1.44")
		answer := `{"message": "no more of this"}`
		switch {
		case strings.HasSuffix(r.URL.Path, "/networks"):
			answer = "[]"
		case strings.HasSuffix(r.URL.Path, "/containers/create"):
			var c created
			if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
				t.Error(err)
			}
			asked <- c
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer daemon.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+daemon.Listener.Addr().String())
	for host, want := range map[string]string{"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "172.17.0.1": "", "docker.example": ""} {
		t.Setenv("TESTCONTAINERS_HOST_OVERRIDE", host)
		p, err := docker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := &site{dir: t.TempDir()}
		hosts, err := s.container(t.Context(), p, testcontainers.ContainerRequest{Image: "test:1"}, "5432")
		if err == nil || len(asked) == 0 {
			t.Fatalf("it runs at %v, or no container was asked for: %v", hosts, err)
		}
		c := <-asked
		if b := c.HostConfig.PortBindings["5432/tcp"]; len(c.HostConfig.PortBindings) != 1 || len(b) != 1 || b[0].HostIp != want {
			t.Errorf("Docker at %s: it publishes %+v, want %q alone", host, c.HostConfig.PortBindings, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		s.close()
	}
}
