package localstack

import (
	"context"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

const (
	// sqsImageEnv names the image to run.
	sqsImageEnv = "ONCEQ_SQS_IMAGE"
	// sqsImage is the last that needs no account: never "latest", and never the newest that is here.
	sqsImage = "localstack/localstack:4.14.0"
)

// runLocalStack runs the official image.
func runLocalStack(ctx context.Context, s *site) (string, error) {
	p, err := docker(ctx)
	if err != nil {
		return "", err
	}
	name, err := image(ctx, p, sqsImageEnv, "", sqsImage)
	if err != nil {
		return "", err
	}
	const port = "4566"
	env := localStackSettings()
	env["GATEWAY_LISTEN"] = "0.0.0.0:" + port
	hosts, err := s.container(ctx, p, testcontainers.ContainerRequest{Image: name, Env: env}, port)
	if err != nil {
		return "", err
	}
	for i, host := range hosts {
		hosts[i] = "http://" + host
	}
	// another image may be another server
	name = testaws.LocalStackName
	if os.Getenv(sqsImageEnv) != "" {
		name = ""
	}
	return serving(ctx, hosts, name, 90*time.Second)
}

// localStackSettings are those of a LocalStack for tests, wherever it runs: one service, there from the beginning; queue
// URLs with the address that the caller used; nothing asked of the network.
func localStackSettings() map[string]string {
	return map[string]string{
		"SERVICES": "sqs", "EAGER_SERVICE_LOADING": "1", "STRICT_SERVICE_LOADING": "1", "SQS_ENDPOINT_STRATEGY": "dynamic",
		"DISABLE_EVENTS": "1", "SKIP_SSL_CERT_DOWNLOAD": "1", "DNS_ADDRESS": "0",
	}
}
