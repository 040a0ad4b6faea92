package main

import (
	"context"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/examples/internal/shop"
	"github.com/onceq/onceq/internal/proof"
	"github.com/onceq/onceq/localstack"
)

// TestMain runs the program itself where a test, or the demo under test, starts it.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEQ_FLEET") != "" || len(os.Args) == 3 && roles[os.Args[1]] != nil || isAWS() {
		main()
		return
	}
	os.Exit(m.Run())
}

// quick are settings for a small file: two hundred orders, four slow, one poison of each sort.
func quick(t *testing.T, seed uint64) *shop.Settings {
	dir := t.TempDir()
	orders, corrections := filepath.Join(dir, "orders.csv"), filepath.Join(dir, "corrections.csv")
	rows, fixes := shop.Generate(200)
	require.NoError(t, os.WriteFile(orders, rows, 0o600))
	require.NoError(t, os.WriteFile(corrections, fixes, 0o600))
	return &shop.Settings{
		Orders: orders, Corrections: corrections, Ledger: filepath.Join(dir, "sub", "ledger.db"), Seed: seed,
		Crashes: 5, Workers: 3,
		Visibility: time.Second, Bank: shop.Bank{Usual: 50 * time.Millisecond, Slow: 2200 * time.Millisecond},
		Restart: 10 * time.Millisecond,
	}
}

// transcript is what the demo and its processes write, each from a goroutine of its own.
type transcript struct {
	mu  sync.Mutex
	all strings.Builder
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// demonstrate runs the demo as it is, and answers its report too.
func demonstrate(t *testing.T, o *shop.Settings, on kind, store storeOptions) (*demo, *shop.Result, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs transcript
	d, r, err := run(ctx, o, on, store, shop.NewScreen(&out), &errs)
	require.NoError(t, err, "%s", &errs)
	require.Empty(t, errs.String())
	r.Print(&out)
	return d, r, out.String()
}

// Whatever instruction kill -9 hits, each good order is charged once, poison ends in the
// dead-letter queue, by class, and is charged once when it is mended, though its replay is killed;
// a second run charges nobody.
func TestEachOrderIsChargedOnce(t *testing.T) {
	t.Parallel()
	o := quick(t, 1)
	d, r, out := demonstrate(t, o, kinds["sqs"], storeOptions{})
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 196, r.After.Good)
	require.Equal(t, 4, r.After.Mended)
	require.Equal(t, 200, r.After.Charges)
	require.True(t, r.Mending.Killed, "%s", out)
	require.GreaterOrEqual(t, r.Mending.First+r.Mending.Again, 4, "%s", out)
	require.Equal(t, 4, r.Mending.Sent, "%s", out)
	require.Empty(t, r.Left, "%s", out)
	require.Equal(t, map[string]int{"bad-amount": 1, "unknown-currency": 1, "decode": 1, "panic": 1}, shop.Tallied(slices.Collect(maps.Values(r.Classes))))
	require.Contains(t, out, "Each good order was charged exactly once")
	require.NotContains(t, out, "FAILED")
	require.EqualValues(t, 5, d.counts.kills.Load(), "%s", out)
	require.Positive(t, d.counts.cutOff.Load(), "no kill hit a handler: %s", out)
	require.Greater(t, r.Receives, r.Sent)
	require.Positive(t, r.Beats)

	_, r, out = demonstrate(t, o, kinds["sqs"], storeOptions{})
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.Before.Charges)
	require.Zero(t, r.NewCharges())
	require.Zero(t, r.Attempts, "a handler ran for an order that had ended before")
	require.Contains(t, out, "All 200 orders had been charged before; nobody was charged again.")
}

// What is kept has dead letters left, and the proof holds with them.
func TestKeepLeavesLetters(t *testing.T) {
	t.Parallel()
	o := &shop.Settings{Ledger: filepath.Join(t.TempDir(), "sub", "ledger.db")}
	k := kinds["sqs"]
	require.NoError(t, k.kept(t.Context(), o, "sqs", "sqlite"))
	rows, err := shop.LoadOrders("")
	require.NoError(t, err)
	corrections, err := shop.LoadCorrections(o.Corrections, true)
	require.NoError(t, err)
	left := 0
	for _, r := range shop.Expected(rows, corrections) {
		if r.Kind == shop.Poison {
			left++
		}
	}
	require.Equal(t, 10, left)
	require.True(t, o.Fresh, "an older ledger has charges of what is left")
	own := &shop.Settings{Orders: "mine.csv", Ledger: o.Ledger}
	require.NoError(t, k.kept(t.Context(), own, "sqs", "sqlite"))
	require.Empty(t, own.Corrections)
	require.NoError(t, k.kept(t.Context(), own, "postgres", "postgres"))
	require.Error(t, k.kept(t.Context(), o, "pubsub", "sqlite"))
	require.Error(t, k.kept(t.Context(), o, "sqs", "dynamodb"))
}

// The directions name the queues as the command onceq takes them.
func TestDirections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    place
		want string
	}{
		{place{Service: "sqs", Queue: "http://127.0.0.1:1/0/orders"}, "sqs+http://127.0.0.1:1/0/orders"},
		{place{Service: "sqlite", Queue: "orders"}, "sqlite-queue:///tmp/kept.db/orders"},
	} {
		require.Equal(t, c.want, c.p.commandURL(c.p.Queue, "/tmp/kept.db"))
	}
	for url, want := range map[string]string{
		"postgres://u:p@h:1/db?sslmode=disable": "postgres-queue://u:p@h:1/db/orders?sslmode=disable&onceq.table=onceq_demo.onceq_messages",
		"postgresql://u@h/db":                   "postgres-queue://u@h/db/orders?onceq.table=onceq_demo.onceq_messages",
	} {
		require.Equal(t, want, place{Service: "postgres", Endpoint: url}.commandURL("orders", ""))
	}
	var out strings.Builder
	d := &demo{o: &shop.Settings{Ledger: "kept.db"}, rows: []shop.Row{{}}, a: assignment{
		place: place{Service: "postgres", Endpoint: "postgres://u@h/db", Queue: "orders", Dead: "orders-dead"}, Store: storeOptions{"postgres", "postgres://u@h/db"},
	}}
	d.directions(&out)
	for _, want := range []string{
		"ONCEQ_STORE='postgres://u@h/db?onceq.table=onceq_demo.onceq_dedupe'", "ONCEQ_DEAD='postgres-queue://u@h/db/orders-dead?",
		"\n  go run ./cmd/onceq web ",
	} {
		require.Contains(t, out.String(), want)
	}
}

// elsewhere: the demo's promise is shown on SQS and SQLite in each run. Chaos kills workers on its
// other places.
const elsewhere = "examples/fleet: the demo on DynamoDB, Firestore, Pub/Sub, PostgreSQL, and with its queue in SQLite"

// The same on DynamoDB, where the charge and the record are two items of one transaction.
func TestOnDynamoDB(t *testing.T) {
	proof.Only(t, elsewhere)
	t.Parallel()
	endpoint := localstack.DynamoDB(t).URL
	o := quick(t, 1)
	o.Fresh = true
	on := storeOptions{"dynamodb", endpoint}
	till, err := openTill("", on)
	require.NoError(t, err)
	t.Cleanup(till.close)
	require.NoError(t, till.make(t.Context(), true))
	d, r, out := demonstrate(t, o, kinds["sqs"], on)
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.After.Charges)
	require.EqualValues(t, 5, d.counts.kills.Load(), "%s", out)
	require.Contains(t, out, "DynamoDB at "+endpoint)

	o.Fresh = false
	_, r, out = demonstrate(t, o, kinds["sqs"], on)
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.Before.Charges)
	require.Zero(t, r.NewCharges())

	// The questions see a second charge, though its item has another number.
	scan, err := till.(*dynamoTill).client.Scan(t.Context(), &dynamodb.ScanInput{TableName: new(chargesTable), Limit: new(int32(1))})
	require.NoError(t, err)
	twin := scan.Items[0]
	twin["number"] = &types.AttributeValueMemberS{Value: "2"}
	_, err = till.(*dynamoTill).client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: new(chargesTable), Item: twin})
	require.NoError(t, err)
	a, err := till.audit(t.Context(), d.rows, nil)
	require.NoError(t, err)
	require.Equal(t, 1, a.Doubled)
	require.NoError(t, till.(*dynamoTill).drop(t.Context()))
}

// The same on Pub/Sub, where no message is held for less than ten seconds, no call tells how many
// messages there are, and the service may go on with the pull of a worker that was killed.
func TestOnPubSub(t *testing.T) {
	proof.Only(t, elsewhere)
	t.Parallel()
	o := quick(t, 1)
	o.Visibility, o.Bank.Slow = kinds["pubsub"].visibility, kinds["pubsub"].visibility+200*time.Millisecond
	d, r, out := demonstrate(t, o, kinds["pubsub"], storeOptions{})
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.After.Charges)
	require.Equal(t, 4, r.After.Mended)
	require.Empty(t, r.Left, "%s", out)
	require.EqualValues(t, 5, d.counts.kills.Load(), "%s", out)
	require.Greater(t, r.Receives, r.Sent)
	require.Contains(t, out, "Pub/Sub at 127.0.0.1:")
}

// The same on Google Cloud's services: the charge and the record are two documents of one
// transaction.
func TestOnFirestore(t *testing.T) {
	proof.Only(t, elsewhere)
	t.Parallel()
	addr := localstack.Firestore(t).Addr
	o := quick(t, 1)
	o.Fresh = true
	o.Visibility, o.Bank.Slow = kinds["pubsub"].visibility, kinds["pubsub"].visibility+200*time.Millisecond
	d, r, out := demonstrate(t, o, kinds["pubsub"], storeOptions{"firestore", addr})
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.After.Charges)
	require.Empty(t, r.Left, "%s", out)
	require.EqualValues(t, 5, d.counts.kills.Load(), "%s", out)
	require.Contains(t, out, "Firestore at "+addr)
}

// The same with the queue in a table: in the ledger's file, or in PostgreSQL, where the charges are
// as well.
func TestOnSQLite(t *testing.T) {
	proof.Only(t, elsewhere)
	t.Parallel()
	onTables(t, kinds["sqlite"], storeOptions{})
}

func TestOnPostgres(t *testing.T) {
	proof.Only(t, elsewhere)
	t.Parallel()
	url := localstack.Postgres(t).URL
	k := kinds["postgres"]
	k.serve = func(context.Context) (service, error) { return postgresAt(url) }
	out := onTables(t, k, storeOptions{"postgres", url})
	require.Contains(t, strings.Join(strings.Fields(out), " "), "table onceq_demo.onceq_messages ledger PostgreSQL at ")
	require.NotContains(t, out, "postgres://", "it has the password")
}

func onTables(t *testing.T, queue kind, store storeOptions) string {
	t.Helper()
	o := quick(t, 1)
	d, r, out := demonstrate(t, o, queue, store)
	require.True(t, r.After.Holds(), "%s", out)
	require.Equal(t, 200, r.After.Charges)
	require.Equal(t, 4, r.After.Mended)
	require.Empty(t, r.Left, "%s", out)
	require.EqualValues(t, 5, d.counts.kills.Load(), "%s", out)
	require.Greater(t, r.Receives, r.Sent)

	// What a run before has left in the tables is no part of this one.
	orders, dead, err := openTable(t.Context(), d.a.place, nil)
	require.NoError(t, err)
	for _, q := range []broker.Broker{orders, dead} {
		require.NoError(t, onceq.Send(t.Context(), q, []broker.Outgoing{onceq.Message("charge", "left", []byte("{"))}))
	}
	o.Crashes = 0
	_, r, again := demonstrate(t, o, queue, store)
	require.True(t, r.After.Holds(), "%s", again)
	require.Equal(t, 200, r.Before.Charges)
	require.Zero(t, r.NewCharges())
	require.Zero(t, r.Letters, "%s", again)
	return out
}

func TestStoreOptions(t *testing.T) {
	t.Setenv("ONCEQ_DYNAMODB_URL", "http://x")
	t.Setenv("ONCEQ_POSTGRES_URL", "")
	for _, c := range []struct {
		name  string
		naive bool
		url   string
		want  string
	}{
		{"sqlite", true, "", ""},
		{"dynamodb", false, "http://x", ""},
		{"postgres", false, "", "-store postgres: ONCEQ_POSTGRES_URL names none; make demo STORE=postgres starts one"},
		{"dynamodb", true, "", "-no-onceq charges in SQLite"},
		{"mongo", false, "", "want sqlite, postgres, dynamodb or firestore"},
	} {
		s := storeOptions{Name: c.name}
		err := s.find(c.naive)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
		require.Equal(t, c.url, s.Endpoint)
	}
}

// Without the library the same run charges twice: what is sent twice, and most of what is slow.
func TestThePlainLoopChargesTwice(t *testing.T) {
	t.Parallel()
	o := quick(t, 1)
	o.Naive = true
	d, r, out := demonstrate(t, o, kinds["sqs"], storeOptions{})
	require.False(t, r.After.Holds())
	sent, slow := 0, 0
	for _, row := range d.rows {
		switch {
		case row.Kind == shop.Slow:
			slow++
		case row.Kind == shop.Good && row.Times > 1:
			sent++
		}
	}
	// A slow order is charged once where no worker was free before its first one had ended.
	require.GreaterOrEqual(t, r.After.Doubled, sent+slow/2, "%s", out)
	require.Zero(t, r.After.PoisonLost, "%s", out)
	require.Contains(t, out, "charges too many")
}

// The exit status says whether the proof held.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	orders, ledger := filepath.Join(dir, "o.csv"), filepath.Join(dir, "l.db")
	require.NoError(t, os.WriteFile(orders, []byte(strings.Join(shop.Columns, ",")+"\nA,x,100,EUR,1,2,good\nB,y,-1,EUR,1,1,poison\n"), 0o600))
	command := func(args ...string) (int, string) {
		var out transcript
		return command(t.Context(), append([]string{"-orders", orders, "-ledger", ledger, "-crashes", "0", "-workers", "1"}, args...), &out, &out), out.String()
	}
	code, out := command()
	require.Zero(t, code, "%s", out)
	// A line that does not fit is cut between its words.
	require.Contains(t, strings.Join(strings.Fields(out), " "), "left in the queue 1 nobody knows what the customer has ordered")
	require.Contains(t, out, "beyond mending                   1")
	db, err := shop.OpenLedger(ledger)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO charges SELECT * FROM charges`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	code, out = command()
	require.Equal(t, 1, code, "%s", out)
	require.Contains(t, out, "charged more than once           1   FAILED")
	require.Contains(t, out, "The promise was broken")

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "-no-onceq"},
		{[]string{"-workers", "0"}, 2, "1 worker or more"},
		{[]string{"-seed", "x"}, 2, "invalid value"},
		{[]string{"-store", "mongo"}, 2, "want sqlite, postgres, dynamodb or firestore"},
		{[]string{"-queue", "kafka"}, 2, `-queue is "kafka", want one of postgres, pubsub, sqlite, sqs`},
		{[]string{"-orders", filepath.Join(dir, "none.csv")}, 1, "none.csv"},
		{[]string{"-ledger", orders}, 1, "making the ledger " + orders},
	} {
		code, out := command(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, out)
		require.Contains(t, out, c.want)
	}
}

// No process stays when the demo ends before its time: at ctrl-C, and when it is killed itself.
func TestNobodyIsLeft(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*os.Process) error{
		"interrupt": func(p *os.Process) error { return p.Signal(os.Interrupt) },
		"kill -9":   (*os.Process).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" && name == "interrupt" {
				t.Skip("no process can send ctrl-C to one alone")
			}
			o := quick(t, 1)
			// Who looks into the file while the demo makes it can keep that from its locks.
			require.NoError(t, shop.MakeLedger(t.Context(), o.Ledger, false))
			exe, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), exe, "-ledger", o.Ledger, "-crashes", "0")
			cmd.Env = append(os.Environ(), "ONCEQ_FLEET=1")
			stderr, err := cmd.StderrPipe() // the workers have it, too: it ends with the last of them
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			charged(t, o.Ledger)
			require.NoError(t, end(cmd.Process))
			all := make(chan string, 1)
			go func() {
				text, _ := io.ReadAll(stderr)
				all <- string(text)
			}()
			select {
			case text := <-all:
				require.Error(t, cmd.Wait())
				if name == "interrupt" {
					require.Equal(t, 1, cmd.ProcessState.ExitCode())
					require.Contains(t, text, "fleet: stopped. Run it again")
				}
			case <-time.After(time.Minute):
				t.Fatal("a process is left")
			}
		})
	}
}

// charged waits until somebody was charged.
func charged(t *testing.T, ledger string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if _, err := os.Stat(ledger); err != nil {
			continue
		}
		a, err := shop.AuditLedger(t.Context(), ledger, nil, nil)
		if err == nil && a.Charges > 0 {
			return
		}
	}
	t.Fatal("nobody was charged within a minute")
}
