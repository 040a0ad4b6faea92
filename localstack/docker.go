package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// This file owns Docker: the connection, the image and a container. The ways postgres_docker.go,
// sqs_docker.go and dynamodb_docker.go call it, in the guard's process. One guard starts one back
// end in one goroutine, so nothing is locked. The site's end removes the container.

const (
	// answerLimit bounds what a Docker that is there does at once.
	answerLimit = 15 * time.Second
	// pullLimit bounds the pull of an image.
	pullLimit = 2 * time.Minute
)

// docker returns a connection to a Docker that answers.
func docker(ctx context.Context) (p *testcontainers.DockerProvider, err error) {
	// it panics over settings that it does not understand
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("testcontainers: %v", v)
		}
	}()
	// Its reaper is one more image to pull, and ends containers between two packages of a run. The
	// guard ends them.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return nil, err
	}
	// Unless it is told of Docker's own network, it makes one that stays.
	options := append(testcontainers.Generic2DockerOptions(testcontainers.WithLogger(quiet{})), testcontainers.WithDefaultBridgeNetwork("bridge"))
	p, err = testcontainers.NewDockerProvider(options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if _, err := p.Client().Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// quiet takes what testcontainers logs.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

var _ log.Logger = quiet{}

// image returns the image to run. It is the one that the variable env names, or else the newest of
// the repository that is here. If there is none, image pulls fallback.
func image(ctx context.Context, p *testcontainers.DockerProvider, env, repository, fallback string) (string, error) {
	name := os.Getenv(env)
	here, err := tags(ctx, p)
	if err != nil {
		return "", err
	}
	if name == "" {
		if name = newest(here, repository); name != "" {
			return name, nil
		}
		name = fallback
	}
	if slices.Contains(here, name) {
		return name, nil
	}
	// Not by testcontainers: it repeats a pull that cannot succeed, until its time is up.
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	pull, err := p.Client().ImagePull(ctx, name, client.ImagePullOptions{})
	if err != nil {
		return "", fmt.Errorf("pulling %s: %w", name, err)
	}
	defer pull.Close()
	if err := pull.Wait(ctx); err != nil {
		return "", fmt.Errorf("pulling %s: %w", name, err)
	}
	return name, nil
}

// tags lists the images that are here.
func tags(ctx context.Context, p *testcontainers.DockerProvider) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	list, err := p.Client().ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range list.Items {
		names = append(names, i.RepoTags...)
	}
	return names, nil
}

// newest returns the repository's image with the highest number in its tag. It is empty if there is
// none.
func newest(names []string, repository string) (best string) {
	for _, name := range names {
		repo, tag, _ := strings.Cut(name, ":")
		if repo == repository && majorIn(tag) > 0 && (best == "" || majorIn(tag) > majorIn(strings.TrimPrefix(best, repository))) {
			best = name
		}
	}
	return best
}

// container starts one with a port of its own, and returns the addresses where that may be.
func (s *site) container(ctx context.Context, p *testcontainers.DockerProvider, req testcontainers.ContainerRequest, port string) ([]string, error) {
	req.ExposedPorts = []string{port + "/tcp"}
	req.Labels = map[string]string{"onceq.localstack": s.dir}
	modify := req.HostConfigModifier
	host, err := p.DaemonHost(ctx)
	if err != nil {
		return nil, err
	}
	req.HostConfigModifier = func(h *container.HostConfig) {
		h.AutoRemove = true
		h.PortBindings = published(port, host)
		if modify != nil {
			modify(h)
		}
	}
	c, err := p.CreateContainer(ctx, req)
	if err != nil {
		return nil, err
	}
	s.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		_, _ = p.Client().ContainerRemove(ctx, c.GetContainerID(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		_ = p.Close()
	})
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	mapped, err := c.MappedPort(ctx, port+"/tcp")
	if err != nil {
		return nil, err
	}
	// Inside a container testcontainers takes Docker to be outside, behind the gateway. But Docker
	// may be beside us.
	hosts := []string{"127.0.0.1"}
	if host != "localhost" {
		hosts = append(hosts, host)
	}
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, mapped.Port())
	}
	return hosts, nil
}

// published binds a container's port to the loopback address, because not all back ends ask who
// comes. Where Docker is on another machine, or outside the container that we are in, we could not
// reach it there: it listens on all addresses of Docker's.
func published(port, dockerHost string) network.PortMap {
	b := network.PortBinding{HostPort: "0"}
	if ip, err := netip.ParseAddr(dockerHost); dockerHost == "localhost" || err == nil && ip.IsLoopback() {
		b.HostIP = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return network.PortMap{network.MustParsePort(port + "/tcp"): {b}}
}
