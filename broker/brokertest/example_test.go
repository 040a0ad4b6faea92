package brokertest_test

import (
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker/brokertest"
)

// The test of a driver; here the memory broker stands for it.
func ExampleRun() {
	test := func(t *testing.T) {
		brokertest.Run(t, brokertest.Harness{
			Virtual: true,
			Open: func(t testing.TB, o brokertest.QueueOptions) brokertest.Queue {
				options := membroker.Options{Preset: membroker.SQSFIFO, Visibility: o.Visibility}
				b, err := membroker.New(&options)
				if err != nil {
					t.Fatal(err)
				}
				return brokertest.Queue{Broker: b, Close: b.Close, SendRaw: b.SendRaw}
			},
			DedupWindow: 5 * time.Minute,
		})
	}
	_ = test // func TestConformance(t *testing.T)
}
