package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/sqsfake"
)

// TestMain runs a worker's process when the program asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(envWorker) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// inBubble is the quiet scene in virtual time; the faults are the server's.
func inBubble(t *testing.T, faults ...sqsfake.Fault) (out string, s *server, spans []string, total int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "book.db")
	synctest.Test(t, func(t *testing.T) {
		s = &server{Server: sqsfake.New(nil)}
		defer s.Close()
		s.queue, s.dead = must(s.CreateQueue("exports", nil)), must(s.CreateQueue("exports-dead", nil))
		s.SetFaults(faults...)
		client := newClient(s.URL)
		client = sqs.New(client.Options(), func(o *sqs.Options) { o.HTTPClient = s.Client() })
		db := open(t.Context(), file)
		defer db.Close()
		var b strings.Builder
		together(t.Context(), &b, client, db, s.queue, s.dead)
		spans, total = byWorker(t.Context(), db)
		out = b.String()
	})
	return out, s, spans, total
}

// Ten visibility timeouts, and SQS has delivered the message once, though another worker polled all
// the while.
func TestTenTimeouts(t *testing.T) {
	out, s, spans, total := inBubble(t)
	require.Equal(t, chapters, total, "%s", out)
	require.Len(t, spans, 1, "%s", out)
	require.Equal(t, 1, s.deliveries(), "%s", out)
	require.Contains(t, out, "done after 10.0 s of work: visibility timeout 1s", out)
	require.GreaterOrEqual(t, s.Counts()["ChangeMessageVisibilityBatch"], 20, "two beats or more in a timeout\n%s", out)
	require.Greater(t, s.Counts()["ReceiveMessage"], 8, "the other worker has polled\n%s", out)
}

// Where the beats do nothing, as after a timeout on AWS, the message is delivered again, and the
// test above sees it. The chapters are written once all the same: the other worker finds the key
// claimed.
func TestWithoutBeats(t *testing.T) {
	out, s, _, total := inBubble(t, sqsfake.Fault{Action: "ChangeMessageVisibilityBatch", Code: "ServiceUnavailable"})
	require.Greater(t, s.deliveries(), 1, "%s", out)
	require.Equal(t, chapters, total, "%s", out)
}

// A real process dies amid the book, and the other goes on behind its last chapter.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := serve()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "book.db")
	db := open(t.Context(), file)
	t.Cleanup(func() { _ = db.Close() })
	var out strings.Builder
	kill(t.Context(), &out, db, s, file)
	report(t.Context(), &out, db, s)
	t.Log(out.String())
	spans, total := byWorker(t.Context(), db)
	require.Equal(t, chapters, total)
	require.GreaterOrEqual(t, len(spans), 2)
	require.Contains(t, out.String(), "is killed after chapter")
	require.GreaterOrEqual(t, s.deliveries(), 2)
	require.Contains(t, out.String(), ": done after")
}

// The statement refuses what an overtaken worker writes.
func TestOvertaken(t *testing.T) {
	db := open(t.Context(), filepath.Join(t.TempDir(), "book.db"))
	defer db.Close()
	late, next := &worker{name: "late", db: db}, &worker{name: "next", db: db}
	require.NoError(t, late.write(t.Context(), 1, 7))
	require.NoError(t, next.write(t.Context(), 2, 8))
	require.ErrorIs(t, late.write(t.Context(), 3, 7), errOvertaken)
	require.Error(t, next.write(t.Context(), 2, 8), "a chapter is written once")
	require.Equal(t, 2, must(readBookmark(t.Context(), db)))
}
