package sqslambda_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/sqslambda"
)

// Events of other services have records that decode as if they were messages. They would be lost if
// they were answered as done, or buried as dead letters.
func TestForeignRecords(t *testing.T) {
	for name, text := range map[string]string{
		"firehose": `{"invocationId":"i","deliveryStreamArn":"arn:aws:firehose:us-east-2:123456789012:deliverystream/d","region":"us-east-2",
			"records":[{"recordId":"49546986683135544286507457936321625675700192471156785154","approximateArrivalTimestamp":1495072949453,"data":"SGVsbG8="}]}`,
		"sns":      `{"Records":[{"EventVersion":"1.0","EventSource":"aws:sns","Sns":{"MessageId":"95df01b4","Message":"hi"}}]}`,
		"s3":       `{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","s3":{"bucket":{"name":"b"}}}]}`,
		"dynamodb": `{"Records":[{"eventID":"1","eventSource":"aws:dynamodb","dynamodb":{"Keys":{}}}]}`,
		"schedule": `{"version":"0","id":"53dc4d37","detail-type":"Scheduled Event","source":"aws.events","detail":{}}`,
	} {
		bubble(t, func(context.Context, *onceq.Job) error { t.Error("it ran"); return nil }, func(r *rig) {
			var e events.SQSEvent
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatal(name, err)
			}
			if failed, err := r.invoke(r.function(), e); err == nil {
				t.Errorf("%s: answered %q and no error", name, failed)
			}
			if l := r.letters(); len(l) != 0 {
				t.Errorf("%s: the letters are %q", name, l)
			}
		})
	}
}

// Where a FIFO queue's records have no ARN, the sequence number decides.
func TestOrderWithoutAnARN(t *testing.T) {
	var runs sync.Map
	bubble(t, plays(&runs), func(r *rig) {
		r.send("a/retry-1", "a/2")
		e := r.receive(time.Minute)
		for i := range e.Records {
			e.Records[i].EventSourceARN = ""
			e.Records[i].Attributes["SequenceNumber"] = fmt.Sprint("1884949646046769612", i)
		}
		failed, err := r.invoke(r.function(), e)
		r.want(failed, err, "retry-1", "2")
		if ran(&runs, "2") != 0 {
			t.Error("what follows a failure ran")
		}
	})
}

// ARNs of the other partitions tell the queue as well.
func TestPartitions(t *testing.T) {
	for _, arn := range []string{
		"arn:aws-cn:sqs:cn-north-1:123456789012:orders.fifo", "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:orders.fifo",
		"arn:aws-iso-b:sqs:us-isob-east-1:123456789012:orders.fifo",
	} {
		var runs sync.Map
		bubble(t, plays(&runs), func(r *rig) {
			r.queues(membroker.SQSFIFO)
			r.withQueue()
			r.arn, r.seen.arn = arn, arn
			r.send("a/retry-1", "a/2")
			failed, err := r.invoke(r.function(), r.receive(time.Minute))
			r.want(failed, err, "retry-1", "2")
			if n := len(r.seen.nacks); n != 2 || r.log.Count("of another queue") != 0 {
				t.Errorf("%s: %d nacks", arn, n)
			}
		})
	}
}

// The id of an S3 notification tells objects apart when their names run into each other. Another
// service's records have none.
func TestNotificationsOfS3(t *testing.T) {
	ids := map[string]bool{}
	for _, c := range []struct{ source, bucket, key string }{{"aws:s3", "ab", "c"}, {"aws:s3", "a", "bc"}, {"aws:s3", "", "abc"}, {"aws:ses", "ab", "c"}} {
		bubble(t, nil, func(r *rig) {
			r.o.Unwrap = sqslambda.S3
			body := fmt.Sprintf(`{"Records":[{"eventSource":%q,"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":%q},"object":{"key":%q}}}]}`, c.source, c.bucket, c.key)
			m := seenBy(r, events.SQSEvent{Records: []events.SQSMessage{{MessageId: "1", Body: body}}})
			switch is := c.source == "aws:s3" && c.bucket != ""; {
			case (m.Meta != nil) != is:
				t.Errorf("%+v: the metadata is %+v", c, m.Meta)
			case is && (m.Meta.ID == "" || ids[m.Meta.ID]):
				t.Errorf("%+v has the id %q of another one", c, m.Meta.ID)
			case is:
				ids[m.Meta.ID] = true
			}
		})
	}
}
