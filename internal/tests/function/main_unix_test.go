//go:build unix

package function_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/sqslambda"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/testserver/testaws"
)

// The test binary is the function as well, where these tell it to be.
const (
	roleEnv      = "LAMBDARUNTIME_ROLE"
	fileEnv      = "LAMBDARUNTIME_FILE"
	diaryEnv     = "LAMBDARUNTIME_DIARY"
	endpointEnv  = "LAMBDARUNTIME_SQS"
	queueEnv     = "LAMBDARUNTIME_QUEUE" // of Options.Queue; empty = none
	dlqEnv       = "LAMBDARUNTIME_DLQ"
	failWholeEnv = "LAMBDARUNTIME_FAIL_WHOLE"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		os.Exit(m.Run())
	}
	if err := function(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What a message alone in its event makes the function do, beside its jobs.
const (
	bodyThatPanics  = "panic"   // and its process ends
	bodyThatAnswers = "answer " // what follows
	bodyThatSwells  = "swells"  // the answer, beyond 6 MB
)

// order is what a message asks for.
type order struct {
	ID, Group string
	Seq       int
	How       string // what goes wrong, at the first attempt
}

// function runs orders into a ledger, in the store's own file.
func function(ctx context.Context) error {
	db, err := sql.Open("sqlite", sqlitestore.DSN(os.Getenv(fileEnv)))
	if err != nil {
		return err
	}
	store, err := sqlitestore.New(db, nil)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	diary, err := os.OpenFile(os.Getenv(diaryEnv), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	client := sqsClient(os.Getenv(endpointEnv))
	dead, err := awssqs.New(client, os.Getenv(dlqEnv), nil)
	if err != nil {
		return err
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.JSON(func(ctx context.Context, j *onceq.Job, o order) error { return book(ctx, db, store, diary, j, o) }),
		Store:   store, Scope: "orders", SettleTimeout: time.Second,
		Defaults: onceq.JobOptions{MaxAttempts: 50, Backoff: func(int, error) time.Duration { return 0 }},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
	if err != nil {
		return err
	}
	o := &sqslambda.Options{Concurrency: 4, FailWhole: os.Getenv(failWholeEnv) != "", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if url := os.Getenv(queueEnv); url != "" {
		if o.Queue, err = awssqs.New(client, url, nil); err != nil {
			return err
		}
	}
	h, err := sqslambda.Handler(b, o)
	if err != nil {
		return err
	}
	lambda.Start(func(ctx context.Context, e events.SQSEvent) (any, error) {
		if len(e.Records) == 1 {
			body := e.Records[0].Body
			if body == bodyThatPanics {
				panic("outside of the handler of jobs")
			}
			if body == bodyThatSwells {
				return strings.Repeat("x", 7<<20), nil
			}
			if text, ok := strings.CutPrefix(body, bodyThatAnswers); ok {
				return json.RawMessage(text), nil
			}
		}
		return h(ctx, e)
	})
	return nil
}

func sqsClient(url string) *sqs.Client {
	return testaws.ClientOf(url)
}

// book writes an order into the ledger, once, and tells the diary whatever it does: that is no part
// of the transaction.
func book(ctx context.Context, db *sql.DB, store *sqlitestore.Store, diary *os.File, j *onceq.Job, o order) error {
	note := func(what string) { fmt.Fprintf(diary, "%s %s %d\n", what, o.ID, j.Fence()) }
	note("start")
	switch {
	case o.How == "poison":
		return onceq.Permanent(errors.New("this order cannot be"))
	case j.Attempt > 1:
	case o.How == "fails":
		return errors.New("not this time")
	case o.How == "slow":
		select {
		case <-time.After(400 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case o.How == "deaf":
		<-time.After(time.Hour)
	case o.How == "held": // long enough to be frozen in the middle
		<-time.After(500 * time.Millisecond)
	}
	ctx = context.WithoutCancel(ctx) // a zombie must be stopped by the store, not by its context
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (id, grp, seq, fence) VALUES (?, ?, ?, ?)`, o.ID, o.Group, o.Seq, j.Fence()); err != nil {
		return err
	}
	if err := store.CompleteTx(ctx, tx, j, nil); err != nil {
		note("refused")
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	note("booked")
	return nil
}

func body(o order) string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // of a plain struct
	}
	return string(text)
}
