package matrix

import (
	"context"
	"flag"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/onceqtest"
	"github.com/onceq/onceq/sqsfake"
)

var seed = flag.Uint64("sqs.seed", 0, "plays again what sqsfake has drawn in a cell; 0 draws a seed for each")

// queues are a cell's queue and the one of its letters.
type queues interface {
	// connect gives a process its own ends; nil = nobody's, to look.
	connect(p *onceqtest.Process) (ends, error)
}

type ends struct{ queue, letters end }

type end interface {
	broker.Receiver
	broker.Sender
	broker.Depther
	broker.Redriver
}

// inMemory is the memory driver's: one end for all.
func inMemory(t testing.TB, b *backend) queues {
	t.Helper()
	var q memoryQueues
	for _, e := range []*end{&q.queue, &q.letters} {
		m, err := membroker.New(&membroker.Options{Visibility: b.visibility})
		if err != nil {
			t.Fatal(err)
		}
		*e = m
	}
	return q
}

type memoryQueues struct{ ends }

func (q memoryQueues) connect(*onceqtest.Process) (ends, error) { return q.ends, nil }

// onSQS puts a backend's queues on SQS: on our own server, which works in bubbles and is as strict
// as AWS. There, too, a poll goes on when its caller has died, and hides what it finds. What AWS
// leaves to chance, such as whether the receipt of an earlier delivery works, is drawn anew in each
// cell; -sqs.seed plays a cell again.
func (b *backend) onSQS(fifo bool) *backend {
	b.plain, b.queues = true, func(t testing.TB, _ *backend) queues {
		q := &sqsQueues{srv: sqsfake.New(&sqsfake.Options{StrandCancelled: true, LogSize: -1, Seed: *seed})}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("it plays again with -sqs.seed=%d", q.srv.Seed())
			}
			q.srv.Close()
		})
		suffix := ""
		if fifo {
			suffix = ".fifo"
		}
		for name, url := range map[string]*string{"queue": &q.url, "letters": &q.lettersURL} {
			var err error
			if *url, err = q.srv.CreateQueue(name+suffix, nil); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	if b.name = "sqs/" + b.name; fifo {
		b.name, b.group = "sqs-fifo/"+b.name[len("sqs/"):], "account-1"
	}
	return b
}

type sqsQueues struct {
	srv             *sqsfake.Server
	url, lettersURL string
}

func (q *sqsQueues) connect(p *onceqtest.Process) (es ends, err error) {
	c := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &q.srv.URL, HTTPClient: wire{q.srv.Client(), p},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	// Each transport plays half of the cells; a seed has always the same one.
	o := &awssqs.Options{Transport: awssqs.TransportSDK}
	if q.srv.Seed()%2 == 0 {
		o.Transport = awssqs.TransportLean
	}
	if es.queue, err = awssqs.New(c, q.url, o); err != nil {
		return es, err
	}
	es.letters, err = awssqs.New(c, q.lettersURL, o)
	return es, err
}

// wire carries a process's requests, and ends with it.
type wire struct {
	c *http.Client
	p *onceqtest.Process
}

func (w wire) Do(r *http.Request) (*http.Response, error) {
	if w.p == nil {
		return w.c.Do(r)
	}
	ctx, cancel := context.WithCancel(w.p.Context(r.Context()))
	defer cancel() // the answer is in memory
	return w.c.Do(r.WithContext(ctx))
}
