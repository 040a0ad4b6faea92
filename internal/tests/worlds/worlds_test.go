package worlds

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	_ "modernc.org/sqlite"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/gcppubsub"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubfake"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/internal/coretest/worlds"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/internal/testserver/testaws"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the places: where a seed's world keeps its queues and its store.

// TestSoak plays random worlds: each seed has its queue and its store.
func TestSoak(t *testing.T) {
	file := template(t)
	for _, seed := range proof.Seeds(t) {
		name, queue := places[seed%uint64(len(places))].name, places[seed%uint64(len(places))].queue
		memory := worlds.Memory(membroker.Memory)
		store, on := memory.Store, "memory"
		if seed/uint64(len(places))%2 == 0 {
			on, store = "sqlite", func(t testing.TB) (dedupe.Store, func(*onceq.Job) bool) { return onSQLite(t, file) }
		}
		t.Run(fmt.Sprintf("%s/%s/%d", name, on, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				worlds.Play(t, seed, &worlds.Place{Queue: queue(t, seed), Store: store})
			})
		})
	}
}

// opens opens the queues of one world.
type opens = func(t testing.TB, name string) worlds.Queue

var places = []struct {
	name  string
	queue func(t *testing.T, seed uint64) opens
}{
	{"sqs", func(t *testing.T, seed uint64) opens { return onSQS(t, seed, "") }},
	{"sqs-fifo", func(t *testing.T, seed uint64) opens { return onSQS(t, seed, ".fifo") }},
	{"pubsub", func(t *testing.T, seed uint64) opens { return onPubSub(t, seed, false) }},
	{"pubsub-ordered", func(t *testing.T, seed uint64) opens { return onPubSub(t, seed, true) }},
	{"sqlite", func(t *testing.T, _ uint64) opens { return inSQLite(t) }},
}

// onSQS draws what AWS leaves to chance from the seed, and one of the two transports.
func onSQS(t *testing.T, seed uint64, suffix string) opens {
	srv := sqsfake.New(&sqsfake.Options{StrandCancelled: true, LogSize: -1, Seed: seed})
	t.Cleanup(srv.Close)
	c := testaws.FakeClient(srv)
	o := &awssqs.Options{Transport: awssqs.TransportSDK}
	if seed%3 > 0 {
		o.Transport = awssqs.TransportLean
	}
	return func(t testing.TB, name string) worlds.Queue {
		url, err := srv.CreateQueue(name+suffix, nil)
		must(t, err)
		q, err := awssqs.New(c, url, o)
		must(t, err)
		return q
	}
}

func onPubSub(t *testing.T, seed uint64, ordered bool) opens {
	srv := pubsubfake.New(&pubsubfake.Options{StrandCancelled: true, LogSize: -1, Seed: seed})
	t.Cleanup(srv.Close)
	return func(t testing.TB, name string) worlds.Queue {
		topic := &pubsubpb.Topic{Name: "projects/onceq/topics/" + name}
		sub := &pubsubpb.Subscription{
			Name: "projects/onceq/subscriptions/" + name, Topic: topic.Name, AckDeadlineSeconds: 10, EnableMessageOrdering: ordered,
		}
		_, err := srv.CreateTopic(t.Context(), topic)
		must(t, err)
		_, err = srv.CreateSubscription(t.Context(), sub)
		must(t, err)
		b, err := gcppubsub.New(srv, topic.Name, sub.Name, &gcppubsub.Options{Ordered: ordered})
		must(t, err)
		return counted{b, srv, sub.Name}
	}
}

// counted tells how much is there, which Pub/Sub itself does not.
type counted struct {
	*gcppubsub.Broker
	srv *pubsubfake.Server
	sub string
}

func (c counted) Depth(context.Context) (broker.Depth, error) {
	s := c.srv.Stats(c.sub)
	return broker.Depth{Visible: int64(s.Ready + s.Blocked), InFlight: int64(s.Held), Delayed: int64(s.Delayed)}, nil
}

// inSQLite has all queues in one file.
func inSQLite(t *testing.T) opens {
	_, s := open(t, filepath.Join(t.TempDir(), "queues.db"))
	return func(t testing.TB, name string) worlds.Queue {
		q, err := sqlitebroker.New(s, name, nil)
		must(t, err)
		must(t, q.Migrate(t.Context()))
		return q
	}
}

// template is a file with the tables, because to make them takes longer than many a world.
func template(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "template.db")
	db, s := open(t, path)
	must(t, s.Migrate(t.Context()))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (key TEXT PRIMARY KEY)")
	must(t, err)
	must(t, s.Close())
	must(t, db.Close()) // it takes the write-ahead log into the file
	file, err := os.ReadFile(path)
	must(t, err)
	return file
}

// open opens a file. No machine loses its power here, so nothing waits for the disk.
func open(t testing.TB, path string) (*sql.DB, *sqlitestore.Store) {
	db, err := sql.Open("sqlite", strings.Replace(sqlitestore.DSN(path), "_synchronous=FULL", "_synchronous=OFF", 1))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlitestore.New(db, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return db, s
}

// onSQLite has a job's effect in the store's own database: a row, which there can be once.
func onSQLite(t testing.TB, file []byte) (dedupe.Store, func(*onceq.Job) bool) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	must(t, os.WriteFile(path, file, 0o600))
	db, s := open(t, path)
	return s, func(j *onceq.Job) bool {
		ctx := context.Background()
		tx, err := db.BeginTx(ctx, nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		if s.CompleteTx(ctx, tx, j, nil) != nil {
			return false
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", j.Key().Key); err != nil {
			t.Errorf("%v: its effect: %v", j.Key(), err)
			return false
		}
		return tx.Commit() == nil
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err) // in a goroutine of a world's, perhaps
		panic(err)
	}
}
