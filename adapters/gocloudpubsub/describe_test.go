package gocloudpubsub_test

import (
	"strings"
	"testing"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/adapters/gocloudpubsub/internal/gocloudtest"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

func TestDescribe(t *testing.T) {
	q := &tiny{}
	b := must.Get(gocloudpubsub.New(q.topic(), nil, gocloudpubsub.Options{}))
	if got, want := b.Describe(), (broker.Description{System: "gocloud"}); got != want {
		t.Errorf("of a driver nobody knows it is %+v, want %+v", got, want)
	}
	gocloudtest.Bubble(t, func(t *testing.T) {
		c := testaws.FakeClient(testaws.FakeSQS(t, nil))
		url := testaws.MakeQueue(t, c, false, nil)
		d := brokerOnSQS(t, c, url, gocloudpubsub.Options{Queue: url}).Describe()
		if d.System != "aws_sqs" || d.Address != url || d.Name == "" || !strings.HasSuffix(url, "/"+d.Name) {
			t.Errorf("on SQS it is %+v", d)
		}
	})
	if got := (*gocloudpubsub.Broker)(nil).Describe(); got != (broker.Description{}) {
		t.Errorf("of nil it is %+v", got)
	}
}
