package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
	"github.com/onceq/onceq/onceqtest"
	"github.com/stretchr/testify/require"
)

// world is what outlives a process: the file of the records, and the bank.
type world struct {
	*testing.T
	file  string
	bank  *bank
	calls atomic.Int64 // of the bank
	takes time.Duration
	err   error
}

func newWorld(t *testing.T) *world {
	return &world{T: t, file: filepath.Join(t.TempDir(), "payments.db"), bank: &bank{}}
}

func (w *world) charge(ctx context.Context, key string, cents int) (string, error) {
	w.calls.Add(1)
	if w.takes > 0 {
		<-time.After(w.takes)
	}
	if w.err != nil {
		return "", w.err
	}
	return w.bank.charge(ctx, key, cents)
}

// start starts a process of the service; wrap lets it die.
func (w *world) start(wrap func(dedupe.Store) dedupe.Store) (h http.Handler, stop func()) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(w.file))
	require.NoError(w, err)
	store, err := sqlitestore.New(db, nil)
	require.NoError(w, err)
	require.NoError(w, store.Migrate(context.Background()))
	var s dedupe.Store = store
	if wrap != nil {
		s = wrap(store)
	}
	h, err = service(s, known, w, slog.New(slog.DiscardHandler))
	require.NoError(w, err)
	return h, func() {
		require.NoError(w, store.Close())
		require.NoError(w, db.Close())
	}
}

// known are the clients of the tests.
var known = clients{"alice": "a", "bob": "b"}

func post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	return postAs(h, "alice", key, body)
}

// postAs posts as a client, where the handler tells them apart.
func postAs(h http.Handler, client, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.SetBasicAuth(client, known[client])
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (w *world) want(r *httptest.ResponseRecorder, status int, replayed bool, body string) {
	w.Helper()
	require.Equal(w, status, r.Code, "%s", r.Body)
	require.Contains(w, r.Body.String(), body)
	require.Equal(w, replayed, r.Header().Get("Idempotency-Replayed") == "true")
	kind := "application/problem+json"
	if status == http.StatusCreated {
		kind = "application/json"
	}
	require.Equal(w, kind, r.Header().Get("Content-Type"))
}

const (
	order = `{"cents": 1250}`
	first = `{"id": "charge-1", "cents": 1250}`
)

func TestAnswersOnce(t *testing.T) {
	w := newWorld(t)
	h, stop := w.start(nil)
	w.want(post(h, "k-1", order), http.StatusCreated, false, first)
	w.want(post(h, "k-1", order), http.StatusCreated, true, first)
	w.want(post(h, `"k-1"`, order), http.StatusCreated, true, first) // as the draft quotes it
	stop()

	h, stop = w.start(nil) // the answer outlives the process
	defer stop()
	w.want(post(h, "k-1", order), http.StatusCreated, true, first)
	w.want(post(h, "k-2", order), http.StatusCreated, false, "charge-2")
	require.EqualValues(t, 2, w.calls.Load())
}

func TestRefuses(t *testing.T) {
	w := newWorld(t)
	h, stop := w.start(nil)
	defer stop()
	w.want(post(h, "", order), http.StatusBadRequest, false, "Idempotency-Key")
	w.want(post(h, strings.Repeat("k", 256), order), http.StatusBadRequest, false, "255")
	w.want(post(h, "\xff", order), http.StatusBadRequest, false, "UTF-8")
	w.want(post(h, "k-1", strings.Repeat("x", 1<<20+1)), http.StatusRequestEntityTooLarge, false, "too large")
	require.Zero(t, w.calls.Load())

	w.want(post(h, "k-1", order), http.StatusCreated, false, first)
	w.want(post(h, "k-1", `{"cents": 9}`), http.StatusUnprocessableEntity, false, "another request")
	require.EqualValues(t, 1, w.calls.Load())

	// The handler's own refusal is an answer like any other.
	w.want(post(h, "k-2", `{"cents": -1}`), http.StatusBadRequest, false, "positive")
	w.want(post(h, "k-2", `{"cents": -1}`), http.StatusBadRequest, true, "positive")
}

// A 5xx decides nothing: the client asks again under the same key, and the handler runs again.
func TestServerErrorIsNotKept(t *testing.T) {
	w := newWorld(t)
	h, stop := w.start(nil)
	defer stop()
	w.err = errors.New("the bank is closed")
	w.want(post(h, "k-1", order), http.StatusBadGateway, false, "closed")
	w.err = nil
	w.want(post(h, "k-1", order), http.StatusCreated, false, first)
	w.want(post(h, "k-1", order), http.StatusCreated, true, first)
}

// Clients that press twice, over a real connection, to two processes: one charge; the others are
// told to wait.
func TestConcurrentRequests(t *testing.T) {
	w := newWorld(t)
	w.takes = 200 * time.Millisecond
	var urls []string
	for range 2 {
		h, stop := w.start(nil)
		defer stop()
		s := httptest.NewServer(h)
		defer s.Close()
		urls = append(urls, s.URL)
	}
	var all sync.WaitGroup
	var created, fresh atomic.Int64
	for i := range 20 {
		all.Go(func() {
			for {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, urls[i%2]+"/payments", strings.NewReader(order))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Idempotency-Key", "k-1")
				r.SetBasicAuth("alice", known["alice"])
				a, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(a.Body)
				a.Body.Close()
				if a.StatusCode == http.StatusConflict && a.Header.Get("Retry-After") == "1" {
					<-time.After(50 * time.Millisecond) // impatient
					continue
				}
				if a.StatusCode != http.StatusCreated || string(body) != first {
					t.Errorf("answered %d: %s", a.StatusCode, body)
				}
				created.Add(1)
				if a.Header.Get("Idempotency-Replayed") == "" {
					fresh.Add(1)
				}
				return
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 20, created.Load())
	require.EqualValues(t, 1, fresh.Load())
	require.EqualValues(t, 1, w.calls.Load())
}

func TestInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = time.Hour
		h, stop := w.start(nil)
		defer stop()
		go post(h, "k-1", order)
		<-time.After(5 * time.Second)
		a := post(h, "k-1", order)
		w.want(a, http.StatusConflict, false, "in progress")
		require.Equal(t, "5", a.Header().Get("Retry-After"))
		w.want(post(h, "k-1", `{"cents": 9}`), http.StatusUnprocessableEntity, false, "another request")
		<-time.After(time.Hour)
		w.want(post(h, "k-1", order), http.StatusCreated, true, first)
		<-time.After(time.Minute) // for a beat that is still in flight
	})
}

// The process dies at each of its calls, after the charge and before its record among them. The
// client asks the next process until it has its answer: there is one charge, whatever happened.
func TestCrash(t *testing.T) {
	for _, at := range []onceqtest.Fault{
		{Op: onceqtest.Claim, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Claim, Kind: onceqtest.CrashAfter},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashBefore},
		{Op: onceqtest.Settle, Kind: onceqtest.CrashAfter},
	} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var process onceqtest.Process
				process.At(at)
				h, stop := w.start(process.Store)
				go post(h, "k-1", order) // nobody sees its answer
				<-process.Dead()
				<-time.After(20 * time.Second) // until the dead process's goroutines have given up
				stop()

				h, stop = w.start(nil)
				defer stop()
				a := post(h, "k-1", order)
				for tries := 0; a.Code == http.StatusConflict && tries < 60; tries++ {
					<-time.After(time.Second)
					a = post(h, "k-1", order)
				}
				w.want(a, http.StatusCreated, at.Op == onceqtest.Settle && at.Kind == onceqtest.CrashAfter, first)
				require.Len(t, w.bank.charges, 1)
				<-time.After(time.Minute)
			})
		})
	}
}

// The records cannot be reached: the client is told that its request did nothing.
func TestNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h, stop := w.start(nil)
		stop()
		a := post(h, "k-1", order)
		w.want(a, http.StatusServiceUnavailable, false, "this request did nothing")
		// Spread, because all who wait are answered together.
		require.Regexp(t, "^[1-5]$", a.Header().Get("Retry-After"))
		<-time.After(time.Minute)
	})
}

// The program is told to end while a request is worked on: the client has its answer, and it is
// recorded.
func TestServeDrains(t *testing.T) {
	w := newWorld(t)
	w.takes = 300 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, w.file, known, w) }()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/payments", strings.NewReader(order))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k-1")
	r.SetBasicAuth("alice", known["alice"])
	go func() {
		for w.calls.Load() == 0 {
			<-time.After(time.Millisecond)
		}
		stop()
	}()
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, a.StatusCode)
	require.Equal(t, first, string(body))
	require.NoError(t, <-ended)

	h, stopped := w.start(nil)
	defer stopped()
	w.want(post(h, "k-1", order), http.StatusCreated, true, first)
}

// A client that never sends the rest of its body does not keep the program from ending.
func TestServeEndsUnderASlowBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, w.file, known, w) }()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST /payments HTTP/1.1\r\nHost: h\r\nAuthorization: Basic YWxpY2U6YQ==\r\nIdempotency-Key: k-1\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	require.NoError(t, err)
	var going [12]byte
	_, err = io.ReadFull(c, going[:]) // the handler reads
	require.NoError(t, err)
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Error("it does not end")
	}
	require.Zero(t, w.calls.Load())
}

// Keys are each client's own, and who does not say who he is gets no answer, not even that a key is
// used.
func TestClientsAreAsked(t *testing.T) {
	w := newWorld(t)
	h, stop := w.start(nil)
	defer stop()
	w.want(post(h, "k-1", order), http.StatusCreated, false, first)
	w.want(postAs(h, "bob", "k-1", order), http.StatusCreated, false, "charge-2")
	for name, ask := range map[string]func(*http.Request){
		"nobody":           func(*http.Request) {},
		"a stranger":       func(r *http.Request) { r.SetBasicAuth("mallory", "") },
		"another password": func(r *http.Request) { r.SetBasicAuth("alice", "b") },
		"no password":      func(r *http.Request) { r.SetBasicAuth("alice", "") },
	} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(order))
		r.Header.Set("Idempotency-Key", "k-1")
		ask(r)
		a := httptest.NewRecorder()
		h.ServeHTTP(a, r)
		require.Equal(t, http.StatusUnauthorized, a.Code, name)
		require.NotEmpty(t, a.Header().Get("WWW-Authenticate"), name)
		require.NotContains(t, a.Body.String(), "charge", name)
	}
	require.EqualValues(t, 2, w.calls.Load())
}

func TestNewClients(t *testing.T) {
	c, err := newClients("alice:a  bob:b:c")
	require.NoError(t, err)
	require.Equal(t, clients{"alice": "a", "bob": "b:c"}, c)
	for _, text := range []string{"alice", "alice:", ":a", "alice:a alice:b"} {
		_, err := newClients(text)
		require.ErrorContains(t, err, "CLIENTS: want name:password", text)
	}
	c, err = newClients("")
	require.NoError(t, err)
	require.Greater(t, len(c["demo"]), 20)
}

// The file of the answers is for its owner alone.
func TestFolderIsOfItsOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there, folders have no such modes")
	}
	w := newWorld(t)
	w.file = filepath.Join(t.TempDir(), "new", "payments.db")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	_ = serve(ctx, l, w.file, known, w) // it has ended before it began
	info, err := os.Stat(filepath.Dir(w.file))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
}
