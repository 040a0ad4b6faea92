package sqlitebroker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/sqlitebroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	_ "modernc.org/sqlite"
)

// Queue, dead letters and keys are in one file. A producer that got no answer sends its job again;
// the second message is acked without a run.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	shop, remove := openShop()
	defer remove()

	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(func(ctx context.Context, j *onceq.Job) error {
			fmt.Printf("mail about %s\n", j.Message.Body)
			return nil
		}),
		Store: shop.store, Scope: "mails", Observer: &printer{left: 2, stop: stop},
	}))
	worker := must(p.Worker(shop.mail, onceq.WorkerConfig{DeadLetter: shop.dead, Concurrency: 1}))
	for range 2 {
		m := onceq.Message("mail", "mail-7", []byte("order 7"))
		if err := onceq.SendOne(ctx, shop.mail, &m); err != nil {
			log.Fatal(err)
		}
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	left := must(shop.mail.Depth(context.Background()))
	fmt.Println("left in the queue:", left.Visible+left.InFlight)
	// Output:
	// mail about order 7
	// mail-7: done
	// mail-7: already-done
	// left in the queue: 0
}

// A job writes its row, sends the next job and completes, in one transaction: all of it is
// committed, or nothing. The first attempt fails behind the send, so its mail is never sent.
func ExampleQueue_Tx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	shop, remove := openShop()
	defer remove()
	pay := func(ctx context.Context, j *onceq.Job) error {
		tx, err := shop.db.BeginTx(ctx, nil) // IMMEDIATE, as sqlitestore.DSN says
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (?)", j.Key().Key); err != nil {
			return err
		}
		mail := onceq.Message("mail", j.Key().Key, []byte("a receipt"))
		if err := onceq.SendOne(ctx, shop.mail.Tx(tx), &mail); err != nil {
			return err
		}
		if j.Attempt == 1 {
			return onceq.RetryAfter(0, errors.New("the bank does not answer"))
		}
		if err := shop.store.CompleteTx(ctx, tx, j, nil); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		shop.mail.Wake() // where the worker is in this process
		return nil
	}

	p := must(onceq.NewProcessor(onceq.ProcessorConfig{
		Handler: onceq.HandlerFunc(pay), Store: shop.store, Scope: "payments", Observer: &printer{left: 2, stop: stop},
	}))
	worker := must(p.Worker(shop.orders, onceq.WorkerConfig{DeadLetter: shop.dead}))
	order := onceq.Message("pay", "order-7", nil)
	if err := onceq.SendOne(ctx, shop.orders, &order); err != nil {
		log.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	ctx = context.Background()
	var payments int
	if err := shop.db.QueryRowContext(ctx, "SELECT count(*) FROM payments").Scan(&payments); err != nil {
		log.Fatal(err)
	}
	mails := must(shop.mail.Depth(ctx))
	fmt.Println("payments:", payments, "mails:", mails.Visible)
	// Output:
	// order-7: retried
	// order-7: done
	// payments: 1 mails: 1
}

// What a queue cannot do is refused at once, with the field and its limit.
func ExampleNew() {
	shop, remove := openShop()
	defer remove()
	_, err := sqlitebroker.New(shop.store, "mail", &sqlitebroker.Options{Visibility: 30})
	fmt.Println(err)
	l := shop.mail.Limits()
	fmt.Println(l.ReceiveBatch, l.MaxHold, l.OrderedGroups, l.Durable)
	d, ok := broker.As[broker.Describer](shop.mail)
	fmt.Println(ok, d.Describe().System, d.Describe().Name)
	// Output:
	// sqlitebroker: Options.Visibility: 30ns is not within 100ms and 12h0m0s; is its unit missing?
	// 100 12h0m0s true true
	// true sqlite mail
}

// shop is one file with a store and queues.
type shop struct {
	db                 *sql.DB
	store              *sqlitestore.Store
	orders, mail, dead *sqlitebroker.Queue
}

// openShop is what a program does at each start. remove ends it.
func openShop() (s *shop, remove func()) {
	dir := must(os.MkdirTemp("", "shop"))
	s = &shop{db: must(sql.Open("sqlite", sqlitestore.DSN(filepath.Join(dir, "shop.db"))))}
	s.store = must(sqlitestore.New(s.db, nil))
	ctx := context.Background()
	err := s.store.Migrate(ctx)
	for name, q := range map[string]**sqlitebroker.Queue{"orders": &s.orders, "mail": &s.mail, "dead": &s.dead} {
		*q = must(sqlitebroker.New(s.store, name, nil))
		err = errors.Join(err, (*q).Migrate(ctx))
	}
	if _, e := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS payments (order_id TEXT) STRICT"); err == nil {
		err = e
	}
	if err != nil {
		log.Fatal(err)
	}
	return s, func() {
		s.store.Close() // last of what uses the file, before the pool
		s.db.Close()
		os.RemoveAll(dir)
	}
}

// printer prints how deliveries have ended, and stops after so many.
type printer struct {
	left int
	stop func()
}

func (*printer) JobStarted(ctx context.Context, _ *onceq.Job) context.Context { return ctx }

func (p *printer) JobEnded(_ context.Context, r *onceq.JobReport) {
	fmt.Printf("%s: %s\n", r.Key.Key, r.Outcome)
	if p.left--; p.left == 0 {
		p.stop()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
