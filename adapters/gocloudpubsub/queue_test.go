package gocloudpubsub_test

import (
	"strings"
	"testing"

	"github.com/onceq/onceq/adapters/gocloudpubsub"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// A Queue that is no URL: SQS's emulators take a name for one, and AWS answers each call with an
// error that names no option. So New refuses it.
func TestQueueIsNoURL(t *testing.T) {
	c := testaws.FakeClient(testaws.FakeSQS(t, nil))
	sub := subscribeSQS(t.Context(), c, "https://sqs.us-east-1.amazonaws.com/000000000000/orders")
	for _, queue := range []string{
		"orders",
		"arn:aws:sqs:us-east-1:000000000000:orders",
		"awssqs://sqs.us-east-1.amazonaws.com/000000000000/orders", // gocloud's URL
		"projects/PROJECT/subscriptions/orders",
		"https://sqs.us-east-1.amazonaws.com/",
	} {
		_, err := gocloudpubsub.New(nil, sub, gocloudpubsub.Options{Reopen: never, Queue: queue})
		if err == nil || !strings.HasPrefix(err.Error(), "gocloudpubsub: Options.Queue: ") || !strings.Contains(err.Error(), queue) {
			t.Errorf("the Queue %q is answered: %v", queue, err)
		}
	}
}
