package places

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// TestQuietSDK: what the AWS SDK would log does not stand amid what the command prints.
func TestQuietSDK(t *testing.T) {
	p := &Places{}
	cfg, err := p.awsConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := p.sqsClient(t.Context(), settings.QueueURL{Region: "eu-central-1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, logger := range map[string]logging.Logger{
		"sqs": client.Options().Logger, "dynamodb": dynamodb.NewFromConfig(cfg).Options().Logger, "sqs of the configuration": sqs.NewFromConfig(cfg).Options().Logger,
	} {
		if _, quiet := logger.(logging.Nop); !quiet {
			t.Errorf("%s logs to %T", name, logger)
		}
	}
}
