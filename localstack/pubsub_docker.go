package localstack

import (
	"context"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	// pubSubImageEnv names the image to run, one with gcloud and its emulators.
	pubSubImageEnv = "ONCEQ_PUBSUB_IMAGE"
	pubSubImage    = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
)

// runPubSub runs the Google Cloud CLI's image.
func runPubSub(ctx context.Context, s *site) (string, error) {
	p, err := docker(ctx)
	if err != nil {
		return "", err
	}
	name, err := image(ctx, p, pubSubImageEnv, "", pubSubImage)
	if err != nil {
		return "", err
	}
	const port = "8085"
	hosts, err := s.container(ctx, p, testcontainers.ContainerRequest{
		Image: name, Cmd: []string{"gcloud", "beta", "emulators", "pubsub", "start", "--project=onceq", "--host-port=0.0.0.0:" + port},
	}, port)
	if err != nil {
		return "", err
	}
	return servingPubSub(ctx, hosts, 90*time.Second)
}
