// Command longvisibility does a job from SQS that takes ten visibility timeouts, the export of a
// book. Then it does another, and kills the worker in the middle.
//
// The trap: SQS hides a message for its visibility timeout and delivers it again, to a second
// worker, while the first is still at it. A timeout as long as the longest job cures that. But
// after a crash nobody takes over for as long.
//
// The answer: a short timeout, and the heartbeat, which needs no setting. No other worker sees the
// message while its own lives. When that one dies, the next one has the message a second later. It
// goes on at the bookmark, which is written in one statement with the chapter. The statement
// refuses a lower fence. So a worker that was overtaken, and does not know it yet, adds nothing.
//
//	go run ./examples/longvisibility
//
// The server is the one for tests. The workers that may be killed are processes of their own, with
// one SQLite file.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

// This file owns the worker, its handler, and the quiet scene with two workers in one process. main
// and the tests call the scenes, and each worker runs in a goroutine or a process of its own. The
// file's database is what they share, and its transactions are the lock. processes.go has the scene
// with kill -9.

const (
	visibility  = time.Second // the shortest that SQS has, so that the wait is short; in earnest 30 s, the default
	chapters    = 20
	chapterTime = visibility / 2
)

// worker exports books.
type worker struct {
	name string
	out  io.Writer
	db   *sql.DB
	done func()
}

// export is the handler: it goes on behind the last chapter that is written, whoever wrote it.
func (w *worker) export(ctx context.Context, j *onceq.Job) error {
	bookmark, err := readBookmark(ctx, w.db)
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "  %s starts behind chapter %d: attempt %d, delivery %d\n", w.name, bookmark, j.Attempt, j.Message.Attempt)
	for chapter := bookmark + 1; chapter <= chapters; chapter++ {
		select {
		case <-time.After(chapterTime):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := w.write(ctx, chapter, j.Fence()); err != nil {
			return err
		}
	}
	return nil
}

const schema = `CREATE TABLE IF NOT EXISTS chapters (chapter INTEGER PRIMARY KEY, worker TEXT NOT NULL, fence INTEGER NOT NULL)`

var errOvertaken = errors.New("a worker with a higher fence has the export now")

// write adds a chapter. It is added once, because it is the primary key, and not at all if somebody
// with a higher fence has written.
func (w *worker) write(ctx context.Context, chapter int, fence uint64) error {
	res, err := w.db.ExecContext(ctx, `INSERT INTO chapters SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM chapters WHERE fence > ?3)`,
		chapter, w.name, int64(fence))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errOvertaken)
	}
	return nil
}

func readBookmark(ctx context.Context, db *sql.DB) (chapter int, err error) {
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(chapter), 0) FROM chapters`).Scan(&chapter)
	return chapter, err
}

// JobStarted adds nothing to the context.
func (w *worker) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

// JobEnded prints what there is to know of the timeouts.
func (w *worker) JobEnded(_ context.Context, r *onceq.JobReport) {
	fmt.Fprintf(w.out, "  %s: %s after %.1f s of work: visibility timeout %v, %d beats, delivery %d\n",
		w.name, r.Outcome, r.Process.Seconds(), r.Visibility, r.Beats, r.Receives)
	if r.Outcome == onceq.OutcomeDone {
		w.done()
	}
}

// run works on the queue until ctx ends. There is no setting for long jobs.
func (w *worker) run(ctx context.Context, client *sqs.Client, queueURL, deadURL string) error {
	store := must(sqlitestore.New(w.db, nil))
	defer store.Close()
	queue := must(awssqs.New(client, queueURL, &awssqs.Options{LongPoll: time.Second}))
	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(w.export), Store: store, Scope: "exports",
		Lease: visibility, Owner: w.name, Logger: slog.New(slog.DiscardHandler), Observer: w,
	}))
	worker := must(p.Worker(queue, onceq.WorkerConfig{DeadLetter: must(awssqs.New(client, deadURL, nil)), Concurrency: 1, Visibility: visibility}))
	return worker.Run(ctx)
}

// newClient is a client of a server for tests.
func newClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	})
}

// open opens the file with the records and the chapters.
func open(ctx context.Context, file string) *sql.DB {
	db := must(sql.Open("sqlite", sqlitestore.DSN(file)))
	store := must(sqlitestore.New(db, nil))
	check(store.Migrate(ctx))
	check(store.Close())
	must(db.ExecContext(ctx, schema))
	return db
}

// send asks for the export.
func send(ctx context.Context, client *sqs.Client, queueURL string) {
	queue := must(awssqs.New(client, queueURL, nil))
	check(onceq.SendOne(ctx, queue, &broker.Outgoing{Meta: &broker.Meta{Key: "book-7"}}))
}

// together is the quiet scene: one worker exports, and another polls the same queue all the while.
func together(ctx context.Context, out io.Writer, client *sqs.Client, db *sql.DB, queueURL, deadURL string) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out = &lines{out: out}
	send(ctx, client, queueURL)
	var workers sync.WaitGroup
	for _, name := range []string{"anna", "bert"} {
		w := &worker{name: name, out: out, db: db, done: stop}
		workers.Go(func() { check(w.run(ctx, client, queueURL, deadURL)) })
	}
	workers.Wait()
}

func main() {
	if name := os.Getenv(envWorker); name != "" {
		workerProcess(name)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := must(os.MkdirTemp("", "onceq-long-"))
	defer func() { check(os.RemoveAll(dir)) }()
	fmt.Printf("a book of %d chapters takes %v, the visibility timeout is %v\n\ntwo workers, and nobody dies\n", chapters, chapters*chapterTime, visibility)
	quiet := serve()
	db := open(ctx, filepath.Join(dir, "quiet.db"))
	together(ctx, os.Stdout, newClient(quiet.URL), db, quiet.queue, quiet.dead)
	report(ctx, os.Stdout, db, quiet)
	fmt.Println("\ntwo processes, and the one that works is killed with kill -9")
	violent := serve()
	db = open(ctx, filepath.Join(dir, "violent.db"))
	kill(ctx, os.Stdout, db, violent, filepath.Join(dir, "violent.db"))
	report(ctx, os.Stdout, db, violent)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
