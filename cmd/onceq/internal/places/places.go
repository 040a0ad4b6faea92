// Package places opens queues and stores by the URLs of package settings. It alone of the command
// knows the SDKs.
//
// The package cli opens what a command names and closes it at the end. A Places is one
// goroutine's. What it has opened may be used by many.
package places

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Places opens queues and stores. The zero value is ready.
type Places struct {
	// Old lets a store be read whose table is of an earlier version.
	Old bool

	aws     *aws.Config
	sqs     map[string]*sqs.Client   // by region and endpoint
	pubsub  any                      // Pub/Sub's clients, once they are there
	pools   map[string]*pgxpool.Pool // of queues, by URL
	closers []func() error
}

// Close closes what was opened, the last first.
func (p *Places) Close() error {
	var errs []error
	for _, c := range slices.Backward(p.closers) {
		errs = append(errs, c())
	}
	p.closers = nil
	return errors.Join(errs...)
}

func (p *Places) closing(c func() error) { p.closers = append(p.closers, c) }

func (p *Places) awsConfig(ctx context.Context) (aws.Config, error) {
	if p.aws == nil {
		// the SDK's own logger writes over the screen of a person
		cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
		if err != nil {
			return aws.Config{}, err
		}
		p.aws = &cfg
	}
	return *p.aws, nil
}

// staticCredentials reports whether the environment names credentials.
func staticCredentials() bool {
	for _, name := range [...]string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// looking is an error of a look that Migrate has made for us: nobody has asked for a Migrate here.
type looking struct{ error }

func (l looking) Error() string { return strings.Replace(l.error.Error(), "Migrate: ", "", 1) }

func (l looking) Unwrap() error { return l.error }
