package sqsfake_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/localstack/sqsfake"
)

func TestSendReceiveDelete(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		q := r.queue("jobs")
		r.send(q, "a")
		got := r.receive(q)
		r.wantBodies(got, "a")
		r.wantBodies(r.receive(q))
		r.wantCode(r.remove(q, got[0]), "")
		after(time.Minute)
		r.wantBodies(r.receive(q))
	})
}

func TestOverHTTP(t *testing.T) {
	srv := sqsfake.Start(t, nil)
	api := sqs.New(sqs.Options{BaseEndpoint: &srv.URL, Region: "us-east-1", Credentials: credentials{}})
	r := &rig{judge: t, srv: srv, api: api}
	q := r.queue("jobs.fifo")
	go r.sendTo(q, "g", "a")
	got := r.receiveWith(&sqs.ReceiveMessageInput{QueueUrl: q, WaitTimeSeconds: 20})
	r.wantBodies(got, "a")
	r.wantCode(r.remove(q, got[0]), "")
}
