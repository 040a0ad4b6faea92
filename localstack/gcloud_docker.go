package localstack

import (
	"context"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	// These name the image to run, one with gcloud and its emulators.
	pubSubImageEnv    = "ONCEQ_PUBSUB_IMAGE"
	firestoreImageEnv = "ONCEQ_FIRESTORE_IMAGE"

	gcloudImage = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
)

// runPubSub runs Pub/Sub's emulator in the Google Cloud CLI's image.
func runPubSub(ctx context.Context, s *site) (string, error) {
	return s.runEmulator(ctx, pubSubImageEnv, "pubsub", servingPubSub)
}

// runFirestore runs Firestore's emulator in the Google Cloud CLI's image.
func runFirestore(ctx context.Context, s *site) (string, error) {
	return s.runEmulator(ctx, firestoreImageEnv, "firestore", servingFirestore)
}

// runEmulator runs one of gcloud's emulators in the image that the variable names.
func (s *site) runEmulator(ctx context.Context, env, emulator string,
	serving func(ctx context.Context, addrs []string, limit time.Duration) (string, error),
) (string, error) {
	p, err := docker(ctx)
	if err != nil {
		return "", err
	}
	name, err := image(ctx, p, env, "", gcloudImage)
	if err != nil {
		return "", err
	}
	const port = "8085"
	hosts, err := s.container(ctx, p, testcontainers.ContainerRequest{
		Image: name, Cmd: []string{"gcloud", "beta", "emulators", emulator, "start", "--project=onceq", "--host-port=0.0.0.0:" + port},
	}, port)
	if err != nil {
		return "", err
	}
	return serving(ctx, hosts, 90*time.Second)
}
