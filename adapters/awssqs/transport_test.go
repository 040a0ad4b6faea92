package awssqs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

func lean(t *testing.T, answer func(stubCall) stubAnswer) (*awssqs.Broker, *stub) {
	t.Helper()
	return stubbed(t, stubURL, &awssqs.Options{Transport: awssqs.TransportLean}, answer)
}

// One debug line says why the SDK makes the calls; where it does not, there is none.
func TestTransportFallsBack(t *testing.T) {
	middle := func(o *sqs.Options) {
		o.APIOptions = append(o.APIOptions, func(*middleware.Stack) error { return nil })
	}
	for name, c := range map[string]struct {
		http sqs.HTTPClient
		set  func(*sqs.Options)
		over awssqs.Transport
		why  string // in the log
		fail string // in New's error
	}{
		"the SDK's own":      {over: awssqs.TransportAuto},
		"buildable":          {http: awshttp.NewBuildableClient(), over: awssqs.TransportAuto},
		"http.Client":        {http: &http.Client{}, over: awssqs.TransportAuto},
		"with a proxy":       {http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}, over: awssqs.TransportAuto},
		"another HTTPClient": {http: &stub{}, over: awssqs.TransportAuto, why: "the HTTPClient is a *awssqs_test.stub"},
		"middleware":         {set: middle, over: awssqs.TransportAuto, why: "the client has middleware in APIOptions"},
		"SDK by choice":      {http: &stub{}, set: middle, over: awssqs.TransportSDK},
		"lean by force":      {http: &stub{}, over: awssqs.TransportLean},
		"force in vain":      {set: middle, over: awssqs.TransportLean, fail: "Options.Transport: TransportLean: the SDK makes the calls: the client has middleware in APIOptions"},
		"no such transport":  {over: 3, fail: "Options.Transport: 3 is none of"},
	} {
		t.Run(name, func(t *testing.T) {
			client := sqs.New(sqs.Options{Region: region, Credentials: aws.CredentialsProviderFunc(credentials), HTTPClient: c.http}, func(o *sqs.Options) {
				if c.set != nil {
					c.set(o)
				}
			})
			var log bytes.Buffer
			_, err := awssqs.New(client, stubURL, &awssqs.Options{
				Transport: c.over, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			if (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("New answers %v", err)
			}
			if n := strings.Count(log.String(), "\n"); (n == 1) != (c.why != "") || !strings.Contains(log.String(), c.why) || c.why != "" && !strings.Contains(log.String(), "level=DEBUG") {
				t.Errorf("the log has %d lines: %s", n, &log)
			}
		})
	}
}

// The lean transport leaves a damaged body to a later delivery, as the SDK's does.
func TestLeanChecksumOfReceive(t *testing.T) {
	b, s := lean(t, func(c stubCall) stubAnswer {
		if c.op == "ReceiveMessage" {
			return stubAnswer{out: object{"Messages": []object{delivery("sound", "r0", ""), damaged(delivery("bad", "r1", ""))}}}
		}
		return allApplied(c)
	})
	ms, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 10, Visibility: time.Second})
	if err != nil || len(ms) != 1 || string(ms[0].Body) != "sound" || b.Stats().Damaged != 1 {
		t.Fatal(ms, err, b.Stats())
	}
	if w, ok := s.of("ReceiveMessage")[0].in["WaitTimeSeconds"]; !ok || w != 0.0 {
		t.Error("a wait of 0 was sent as", w)
	}
	if h := s.of("ChangeMessageVisibilityBatch"); len(h) != 1 {
		t.Error(h)
	}
}

func TestLeanChecksumOfSend(t *testing.T) {
	b, _ := lean(t, func(c stubCall) stubAnswer {
		return stubAnswer{out: object{"Successful": []object{{"Id": "0", "MessageId": "m", "MD5OfMessageBody": strings.Repeat("0", 32)}}}}
	})
	_, err := b.Send(t.Context(), []broker.Outgoing{{Body: []byte("x")}})
	if !errors.Is(broker.ErrAt(err, 0), awssqs.ErrChecksum) {
		t.Error(err)
	}
}

// An entry that failed is its own.
func TestLeanPartialFailure(t *testing.T) {
	b, _ := lean(t, func(stubCall) stubAnswer {
		return stubAnswer{out: object{"Successful": []object{{"Id": "0"}}, "Failed": []object{entryFails("1", "ReceiptHandleIsInvalid", "no")}}}
	})
	err := b.Ack(t.Context(), []broker.Receipt{"a", "b", "c"})
	if broker.ErrAt(err, 0) != nil || !errors.Is(broker.ErrAt(err, 1), broker.ErrReceiptExpired) || broker.ErrAt(err, 2) == nil {
		t.Error(err)
	}
}

// errors.As reaches the SDK's types, and a send is repeated when it was throttled.
func TestLeanErrors(t *testing.T) {
	b, s := lean(t, func(c stubCall) stubAnswer {
		if c.op == "SendMessageBatch" {
			return stubAnswer{code: "RequestThrottled"}
		}
		return stubAnswer{code: "QueueDoesNotExist", text: "no"}
	})
	_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1, Visibility: time.Second})
	var missing *types.QueueDoesNotExist
	var op *smithy.OperationError
	var res *awshttp.ResponseError
	if !errors.Is(err, broker.ErrNotFound) || !errors.As(err, &missing) || !errors.As(err, &op) || !errors.As(err, &res) || res.HTTPStatusCode() != http.StatusBadRequest {
		t.Errorf("%v: %v %v %v", err, missing, op, res)
	}
	if _, err := b.Send(context.Background(), []broker.Outgoing{{Body: []byte("x")}}); !errors.Is(err, broker.ErrThrottled) || len(s.of("SendMessageBatch")) != 3 || b.Stats().Sends != 3 {
		t.Error(err, b.Stats())
	}
}
