package sqsfake_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/sqsfake"
)

// A test would say srv := sqsfake.Start(t, nil), and leave out HTTPClient.
func Example() {
	srv := sqsfake.New(nil)
	defer srv.Close()
	client := sqs.New(sqs.Options{
		BaseEndpoint: &srv.URL,
		HTTPClient:   srv.Client(), // no socket: it works in a bubble of testing/synctest too
		Region:       "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	queue, err := srv.CreateQueue("orders", map[string]string{"VisibilityTimeout": "60"})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("order 7")}); err != nil {
		log.Fatal(err)
	}
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, WaitTimeSeconds: 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*got.Messages[0].Body)
	fmt.Println(srv.Counts())
	// Output:
	// order 7
	// map[ReceiveMessage:1 SendMessage:1]
}

// The reply of the first delete is lost after it was applied; the SDK's retry finds the message
// deleted, which is a success.
func ExampleServer_SetFaults() {
	srv := sqsfake.New(nil)
	defer srv.Close()
	queue, err := srv.CreateQueue("orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	client := sqs.New(sqs.Options{
		BaseEndpoint: &srv.URL, HTTPClient: srv.Client(), Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
	ctx := context.Background()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: aws.String("order 7")}); err != nil {
		log.Fatal(err)
	}
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, WaitTimeSeconds: 20})
	if err != nil {
		log.Fatal(err)
	}

	srv.SetFaults(
		sqsfake.Fault{Action: "DeleteMessage", Count: 1, Reset: true, Applied: true},
		sqsfake.Fault{Action: "DeleteMessage", Delay: time.Millisecond},
	)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: got.Messages[0].ReceiptHandle})
	fmt.Println("error:", err)
	fmt.Println("requests:", srv.Counts()["DeleteMessage"])
	// Output:
	// error: <nil>
	// requests: 2
}
