package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/sqsfake"
)

// This file owns the server, the processes, and the scene in which one is killed. main and the
// tests call it, in one goroutine. Only lines has a lock, because several processes or workers
// write to one screen.

// What a worker's process is told.
const (
	envWorker = "LONGVISIBILITY_WORKER"
	envServer = "LONGVISIBILITY_SERVER"
	envQueue  = "LONGVISIBILITY_QUEUE"
	envDead   = "LONGVISIBILITY_DEAD"
	envFile   = "LONGVISIBILITY_FILE"
)

// server is SQS in this process's memory.
type server struct {
	*sqsfake.Server
	queue, dead string
}

func serve() *server {
	s := &server{Server: sqsfake.New(nil)}
	l := must((&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	s.URL = "http://" + l.Addr().String()
	s.queue, s.dead = must(s.CreateQueue("exports", nil)), must(s.CreateQueue("exports-dead", nil))
	go func() { _ = (&http.Server{Handler: s, ReadHeaderTimeout: time.Second}).Serve(l) }()
	return s
}

// deliveries is how often the server has given a message to a worker.
func (s *server) deliveries() (n int) {
	for _, r := range s.Requests() {
		n += r.Messages
	}
	return n
}

// workerProcess is all that a worker's process does.
func workerProcess(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db := open(ctx, os.Getenv(envFile))
	w := &worker{name: name, out: os.Stdout, db: db, done: func() {}}
	check(w.run(ctx, newClient(os.Getenv(envServer)), os.Getenv(envQueue), os.Getenv(envDead)))
}

// kill starts two processes, kills the one that exports after a third of the book, and waits for
// the other.
func kill(ctx context.Context, out io.Writer, db *sql.DB, s *server, file string) {
	out = &lines{out: out}
	processes := make(map[string]*exec.Cmd)
	for _, name := range []string{"carl", "dora"} {
		c := exec.CommandContext(ctx, must(os.Executable())) //nolint:gosec // this program itself
		c.Env = append(os.Environ(), envWorker+"="+name, envServer+"="+s.URL, envQueue+"="+s.queue, envDead+"="+s.dead, envFile+"="+file)
		c.Stdout, c.Stderr = out, out
		check(c.Start())
		processes[name] = c
	}
	send(ctx, newClient(s.URL), s.queue)
	victim, chapter := waitFor(ctx, db, chapters/3, "")
	check(processes[victim].Process.Kill())
	_ = processes[victim].Wait()
	killed := time.Now()
	fmt.Fprintf(out, "  %s is killed after chapter %d\n", victim, chapter)

	other, _ := waitFor(ctx, db, chapter, victim)
	if other != "" {
		fmt.Fprintf(out, "  %s has added a chapter %.1f s later\n", other, time.Since(killed).Seconds())
	}
	waitFor(ctx, db, chapters, "")
	for name, c := range processes {
		if name != victim {
			for ctx.Err() == nil && s.left(ctx) > 0 { // its ack is under way
				<-time.After(20 * time.Millisecond)
			}
			_ = c.Process.Signal(os.Interrupt)
			check(c.Wait())
		}
	}
}

// left is how many messages the queue has, hidden ones too.
func (s *server) left(ctx context.Context) int64 {
	d := must(must(awssqs.New(newClient(s.URL), s.queue, nil)).Depth(ctx))
	return d.Visible + d.InFlight + d.Delayed
}

// waitFor waits until so many chapters are written, the last of them not by that worker, and tells
// by whom.
func waitFor(ctx context.Context, db *sql.DB, least int, not string) (worker string, chapter int) {
	for ctx.Err() == nil {
		err := db.QueryRowContext(ctx, `SELECT worker, chapter FROM chapters ORDER BY chapter DESC LIMIT 1`).Scan(&worker, &chapter)
		if err == nil && chapter >= least && worker != not {
			return worker, chapter
		}
		<-time.After(20 * time.Millisecond)
	}
	return "", 0
}

// byWorker tells which chapters each worker has written, in their order: "anna 1-20".
func byWorker(ctx context.Context, db *sql.DB) (spans []string, total int) {
	rows := must(db.QueryContext(ctx, `SELECT worker, min(chapter), max(chapter), count(*) FROM chapters GROUP BY fence ORDER BY fence`))
	defer rows.Close()
	for rows.Next() {
		var worker string
		var first, last, n int
		check(rows.Scan(&worker, &first, &last, &n))
		spans = append(spans, fmt.Sprintf("%s %d-%d", worker, first, last))
		total += n
	}
	check(rows.Err())
	return spans, total
}

func report(ctx context.Context, out io.Writer, db *sql.DB, s *server) {
	spans, total := byWorker(ctx, db)
	verdict := "each once"
	if total != chapters {
		verdict = fmt.Sprintf("%d are MISSING", chapters-total)
	}
	fmt.Fprintf(out, "  %d chapters, %s: %s; deliveries by SQS: %d\n", total, verdict, strings.Join(spans, ", "), s.deliveries())
}

// lines lets many write.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}
