package places

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
)

// Queue opens a queue. A name on SQS costs a call, of GetQueueUrl.
func (p *Places) Queue(ctx context.Context, q settings.QueueURL) (broker.Broker, error) {
	switch q.Kind {
	case settings.PubSub:
		return p.pubsubQueue(ctx, q)
	case settings.PostgresQueue:
		return p.postgresQueue(ctx, q)
	case settings.SQLiteQueue:
		return p.sqliteQueue(ctx, q)
	}
	client, err := p.sqsClient(ctx, q)
	if err != nil {
		return nil, err
	}
	url := q.URL
	if url == "" {
		name := q.Name
		if q.Account != "" && q.Endpoint == "" {
			name = "arn:aws:sqs:" + client.Options().Region + ":" + q.Account + ":" + q.Name
		}
		if url, err = awssqs.Find(ctx, client, name); err != nil {
			return nil, err
		}
	}
	b, err := awssqs.New(client, url, nil)
	if err != nil {
		return nil, err
	}
	p.closing(b.Close)
	return b, nil
}

// Dead opens the dead-letter queue that the policy of q names, where it is on SQS. nil: there is
// none, or nobody can tell.
func (p *Places) Dead(ctx context.Context, q settings.QueueURL, b broker.Broker) (broker.Broker, error) {
	redriver, ok := broker.As[broker.Redriver](b)
	if !ok || q.Kind != settings.SQS {
		return nil, nil
	}
	policy, err := redriver.Redrive(ctx)
	if err != nil || policy.Target == "" {
		return nil, err
	}
	parts := strings.Split(policy.Target, ":")
	if len(parts) != 6 {
		return nil, fmt.Errorf("the redrive policy names %q, which is no ARN of a queue", policy.Target)
	}
	q.URL, q.Account, q.Name = "", parts[4], parts[5]
	return p.Queue(ctx, q)
}

func (p *Places) sqsClient(ctx context.Context, q settings.QueueURL) (*sqs.Client, error) {
	region := q.Region
	if region == "" && q.URL != "" {
		region = regionOf(q.URL)
	}
	key := region + " " + q.Endpoint
	if c := p.sqs[key]; c != nil {
		return c, nil
	}
	cfg, err := p.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	if region == "" && cfg.Region == "" && q.Endpoint == "" {
		return nil, errors.New("no AWS region: name it in the URL (sqs://REGION/NAME) or in AWS_REGION")
	}
	c := sqs.NewFromConfig(cfg, func(o *sqs.Options) {
		if region != "" {
			o.Region = region
		}
		if q.Endpoint != "" {
			o.BaseEndpoint = &q.Endpoint
			local(&o.Region, &o.Credentials)
		}
	})
	if p.sqs == nil {
		p.sqs = map[string]*sqs.Client{}
	}
	p.sqs[key] = c
	return c, nil
}

// local gives a server that is not AWS a region and credentials, where the environment has none: it
// wants a signature, and mostly does not check it.
func local(region *string, credentials *aws.CredentialsProvider) {
	if *region == "" {
		*region = "us-east-1"
	}
	given := *credentials
	*credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		if given != nil && staticCredentials() {
			return given.Retrieve(ctx)
		}
		return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test", Source: "onceq"}, nil
	})
}

// regionOf is the region in https://sqs.REGION.amazonaws.com/….
func regionOf(url string) string {
	_, rest, _ := strings.Cut(url, "://sqs.")
	host, _, _ := strings.Cut(rest, "/")
	region, domain, _ := strings.Cut(host, ".")
	if strings.HasPrefix(domain, "amazonaws.com") {
		return region
	}
	return ""
}
