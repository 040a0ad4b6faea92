package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceq/onceq/dedupe"
)

// peek is a message of no bytes that sees the connection's buffer.
type peek struct {
	room
	buf []byte
}

func (p *peek) Encode(dst []byte) ([]byte, error) {
	p.buf = dst
	return dst, nil
}

// TestRoomIsLeft: no connection keeps a buffer that another one may get, neither after a long nor a short write, nor after an
// error, in whatever mode. Two that had the same one sent each other's bytes, and their calls never ended.
func TestRoomIsLeft(t *testing.T) {
	pool := openPool(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		moded := poolOn(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		conn, err := moded.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := conn.Conn().PgConn().Frontend()
		for _, sql := range []string{"SELECT length($1::text)", "SELECT 1 / (length($1::text) - length($1::text))", "SELECT nothing, $1"} {
			for _, size := range []int{10, 5000, 20_000} {
				var b pgx.Batch
				b.Queue(sql, fmt.Sprintf("%0*d", size, 1))
				r := enter(f, 1000)
				entered := r.buf[:1]
				conn.SendBatch(t.Context(), &b).Close()
				r.leave(f)
				p := new(peek)
				f.Send(p)
				if cap(p.buf) > 0 && &p.buf[:1][0] == &entered[0] {
					t.Errorf("%v, %s of %d bytes: the connection has kept the buffer", mode, sql, size)
				}
			}
		}
		if n := scan[int](t, moded, "SELECT 7"); n != 7 {
			t.Errorf("%v: %d", mode, n)
		}
		conn.Release()
	}
}

// TestClosedConnectionKeepsItsRoom: a call that is cut off closes its connection from a goroutine of pgx's own, which may still write.
func TestClosedConnectionKeepsItsRoom(t *testing.T) {
	conn, err := openPool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	r := enter(conn.Conn().PgConn().Frontend(), 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var b pgx.Batch
	b.Queue("SELECT pg_sleep(60)")
	if err := conn.SendBatch(ctx, &b).Close(); err == nil {
		t.Fatal("the call was not cut off")
	}
	r.leaveOpen(conn.Conn())
	if !r.entered {
		t.Error("the buffer was taken out of a closed connection")
	}
}

// TestRoom: what is written before it and not yet sent comes along, in and out.
func TestRoom(t *testing.T) {
	var sent bytes.Buffer
	f := pgproto3.NewFrontend(nil, &sent)
	query := func(s string) { f.Send(&pgproto3.Query{String: s}) }
	query("one")
	r := enter(f, 100)
	query("two")
	r.leave(f)
	query("three")
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, s := range []string{"one", "two", "three"} {
		want, _ = (&pgproto3.Query{String: s}).Encode(want)
	}
	if !bytes.Equal(sent.Bytes(), want) {
		t.Errorf("sent %q, want %q", sent.Bytes(), want)
	}
	if enter(f, maxKept+1) != nil {
		t.Error("a huge buffer is kept for the next call")
	}
}

// TestSmallBatchesShareNoBuffer: so do short writes of many connections.
func TestSmallBatchesShareNoBuffer(t *testing.T) {
	s := newStore(t, openPool(t), newTable())
	errs := make(chan error, 8)
	for caller := range cap(errs) {
		go func() {
			for i := range 50 {
				q := request(fmt.Sprintf("%d-%d", caller, i))
				if c, err := s.Claim(t.Context(), []dedupe.ClaimRequest{q}); err != nil || c[0].Outcome != dedupe.Won || c[0].Lease.Key != q.Key {
					errs <- fmt.Errorf("%+v, %w", c, err)
					return
				}
				if r, err := s.Get(t.Context(), []dedupe.Key{q.Key}); err != nil || r[0] == nil || r[0].MessageID != q.MessageID {
					errs <- fmt.Errorf("%+v, %w", r, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// deaf is a pool that answers a pipeline, and its COMMIT with a word of its own; none is no answer.
type deaf struct {
	DB
	word string
}

func (d deaf) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	return &deafResults{b: b, word: d.word}
}

type deafResults struct {
	pgx.BatchResults
	b    *pgx.Batch
	word string
}

func (r *deafResults) Exec() (pgconn.CommandTag, error) { return pgconn.NewCommandTag(r.word), nil }

func (r *deafResults) Close() error {
	queued := r.b.QueuedQueries
	if last := queued[len(queued)-1]; r.word != "" && last.Fn != nil {
		return last.Fn(r)
	}
	return nil
}

// TestCommitsAnswer: without the word COMMIT nothing counts as written, and no answer is given.
func TestCommitsAnswer(t *testing.T) {
	for word, want := range map[string]string{"ROLLBACK": "COMMIT was answered ROLLBACK", "": "COMMIT was not answered", "COMMIT": ""} {
		p := newPipeline()
		err := p.run(t.Context(), deaf{word: word})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", word, err, want)
		}
		if rolledBack := word == "ROLLBACK"; isRolledBack(err) != rolledBack {
			t.Errorf("%q counts as rolled back: %v", word, !rolledBack)
		}
	}
}

// TestRolledBack: which errors are the server's word that a COMMIT was not done.
func TestRolledBack(t *testing.T) {
	for _, c := range []struct {
		code, severity string
		want           bool
	}{
		{"23505", "ERROR", true},
		{"40001", "ERROR", true},
		{"57014", "ERROR", true},
		{"XX000", "ERROR", true},
		{"53100", "ERROR", true},
		{"57P01", "FATAL", false},
		{"23505", "FATAL", false},
		{"XX000", "PANIC", false},
		// as poolers say it
		{"08P01", "ERROR", false},
		{"08006", "ERROR", false},
		{"57P01", "ERROR", false},
		{"57P03", "ERROR", false},
		{"58000", "ERROR", false},
	} {
		for _, pe := range []*pgconn.PgError{{Code: c.code, Severity: c.severity}, {Code: c.code, Severity: "FEHLER", SeverityUnlocalized: c.severity}} {
			if got := isRolledBack(fmt.Errorf("wrapped: %w", pe)); c.severity == "ERROR" && got != c.want || c.severity != "ERROR" && got {
				t.Errorf("%s %s: %v, want %v", c.severity, c.code, got, c.want)
			}
		}
	}
	if isRolledBack(nil) || isRolledBack(io.ErrUnexpectedEOF) {
		t.Error("no word of the server's counts as one")
	}
}
