package localstack

import (
	"context"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	// dynamoDBImageEnv names the image to run: a DynamoDB Local, or a LocalStack.
	dynamoDBImageEnv = "ONCEQ_DYNAMODB_IMAGE"
	dynamoDBImage    = "amazon/dynamodb-local:3.1.0"
)

// runDynamoDB runs AWS's image.
func runDynamoDB(ctx context.Context, s *site) (string, error) {
	p, err := docker(ctx)
	if err != nil {
		return "", err
	}
	name, err := image(ctx, p, dynamoDBImageEnv, "", dynamoDBImage)
	if err != nil {
		return "", err
	}
	port := "8000"
	req := testcontainers.ContainerRequest{Image: name}
	repository, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if strings.HasPrefix(repository, "localstack") {
		port = "4566"
		req.Env = localStackSettings()
		req.Env["SERVICES"], req.Env["GATEWAY_LISTEN"] = "dynamodb", "0.0.0.0:"+port
	} else {
		req.Cmd = []string{"-jar", "DynamoDBLocal.jar", "-inMemory", "-disableTelemetry", "-port", port}
		req.Env = map[string]string{"DDB_LOCAL_TELEMETRY": "0"}
		s.version = tag
	}
	hosts, err := s.container(ctx, p, req, port)
	if err != nil {
		return "", err
	}
	for i, host := range hosts {
		hosts[i] = "http://" + host
	}
	return servingDynamoDB(ctx, hosts, 90*time.Second)
}
