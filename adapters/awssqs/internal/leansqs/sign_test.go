package leansqs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/adapters/awssqs/internal/leansqs"
)

// A kept key signs for its own day and its own credentials only.
func TestKeptKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[aws.Credentials]
		lean := both(t, always(200, "{}"), func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return *now.Load(), nil })
		})["lean"]
		one := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}
		renewed, another := one, one
		renewed.SecretAccessKey, another.AccessKeyID = "another secret", "AKID2"
		session, spaced := one, one
		session.SessionToken, spaced.SessionToken = "token", "a  token"
		framed := one
		framed.SessionToken = " token "
		for _, pause := range []time.Duration{time.Second, 25 * time.Hour} { // on one day, and each on another
			for i, c := range []aws.Credentials{one, one, renewed, another, session, spaced, framed, one} {
				now.Store(&c)
				if _, err := send(t.Context(), lean); err != nil {
					t.Fatal(err)
				}
				checkSent(t, lean.sent[len(lean.sent)-1], c)
				if t.Failed() {
					t.Fatalf("with the credentials %d, %v", i, time.Now())
				}
				<-time.After(pause)
			}
		}
	})
}

func checkSent(t testing.TB, s sent, c aws.Credentials) {
	t.Helper()
	sum := sha256.Sum256([]byte(s.body))
	checkSignature(t, s, c, hex.EncodeToString(sum[:]), "us-east-1")
}

// Many goroutines sign at once, at midnight too.
func TestSignaturesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lean := both(t, always(200, "{}"))["lean"]
		<-time.After(24*time.Hour - time.Second)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 20 {
					if _, err := send(t.Context(), lean); err != nil {
						t.Error(err)
					}
					<-time.After(100 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		c, _ := keys(t.Context())
		for _, s := range lean.sent {
			checkSent(t, s, c)
		}
	})
}

// A signer of the SDK's with other settings makes another signature, so the SDK is used.
func TestSignerWithSettings(t *testing.T) {
	o := sqs.New(sqs.Options{
		Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(keys), HTTPClient: &server{play: always(200, "{}")},
		HTTPSignerV4: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableSessionToken = true }),
	}).Options()
	if _, err := leansqs.New(o, func(string) {}); !errors.Is(err, leansqs.ErrUnfit) {
		t.Fatal(err)
	}
}

// Random receipts, numbers and lists are written as by the SDK.
func TestRandomBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := both(t, always(200, "{}"))
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			text := func() *string {
				b := make([]rune, r.IntN(40))
				for i := range b {
					b[i] = rune(' ' + r.IntN(95))
					if seed%4 == 0 && r.IntN(20) == 0 {
						b[i] = rune(r.IntN(0x300))
					}
				}
				return new(string(b))
			}
			gone := &sqs.DeleteMessageBatchInput{QueueUrl: new(queue)}
			held := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: new(queue)}
			for i := range r.IntN(10) + 1 {
				id, receipt := new(fmt.Sprint(i)), text()
				gone.Entries = append(gone.Entries, types.DeleteMessageBatchRequestEntry{Id: id, ReceiptHandle: receipt})
				held.Entries = append(held.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: id, ReceiptHandle: receipt, VisibilityTimeout: r.Int32N(3)})
			}
			get := &sqs.ReceiveMessageInput{
				QueueUrl: text(), MaxNumberOfMessages: r.Int32N(3), VisibilityTimeout: r.Int32N(3), WaitTimeSeconds: r.Int32N(20) + 1,
				ReceiveRequestAttemptId: text(), MessageAttributeNames: []string{*text(), "All"}[:r.IntN(3)],
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All", "b"}[:r.IntN(3)],
			}
			for kind, p := range ps {
				p.sent = nil
				_, err1 := p.ReceiveMessage(t.Context(), get)
				_, err2 := p.DeleteMessageBatch(t.Context(), gone)
				_, err3 := p.ChangeMessageVisibilityBatch(t.Context(), held)
				if err := errors.Join(err1, err2, err3); err != nil {
					t.Fatal(kind, err)
				}
			}
			for i, s := range ps["sdk"].sent {
				if have := ps["lean"].sent[i].body; have != s.body {
					t.Fatalf("seed %d: the SDK sends\n%s\nwe\n%s", seed, s.body, have)
				}
			}
		}
	})
}
