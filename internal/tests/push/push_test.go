package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/pubsubwire"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

// This file owns the test's push endpoint and what it counts. The server's goroutines write the
// counts, under the endpoint's lock.

const (
	jobs    = 30
	patient = 3 * time.Minute // after a failed push the emulator may rest for one or two
)

// endpoint counts what the handler did and what was answered, by job.
type endpoint struct {
	mu            sync.Mutex
	effects, runs map[string]int
	pushes        map[string]int // by message id
	lost          string         // the id of the message whose first answer was lost
	changed       chan struct{}
	h             *pubsubpush.Handler
}

// Handle fails the job "once" at first.
func (e *endpoint) Handle(_ context.Context, j *onceq.Job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := string(j.Message.Body)
	if e.runs[name]++; name == "once" && e.runs[name] == 1 {
		return errors.New("not this time")
	}
	e.effects[name]++
	return nil
}

// ServeHTTP loses the first answer to the job "lost": the job is done, and Pub/Sub hears nothing.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var envelope struct {
		Message struct {
			Data      []byte
			MessageID string
		}
	}
	_ = json.Unmarshal(body, &envelope) // the handler under test refuses what is none
	id := envelope.Message.MessageID
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	e.h.ServeHTTP(answer, r)
	e.mu.Lock()
	e.pushes[id]++
	lose := string(envelope.Message.Data) == "lost" && e.pushes[id] == 1
	if lose {
		e.lost = id
	}
	e.mu.Unlock()
	defer func() {
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}()
	if lose {
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// rest calls the emulator's REST interface.
func rest(t *testing.T, method, url string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(text))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s %s: %s", method, url, said)
}

// message is a job as Pub/Sub publishes it.
func message(t *testing.T, name string) map[string]any {
	t.Helper()
	data, attributes, _, err := pubsubwire.Encode(&broker.Outgoing{Body: []byte(name), Meta: &broker.Meta{ID: "job-" + name, Created: time.Now()}})
	require.NoError(t, err)
	return map[string]any{"data": data, "attributes": attributes}
}

// TestEmulatorPushes: each job has one effect, although two copies of each are published, one
// fails at first, and the answer to another is lost. What is pushed again is found done.
func TestEmulatorPushes(t *testing.T) {
	s := testgcp.NewPubSub(t)
	if s.Kind != "emulator" {
		t.Skip("no server that pushes: " + s.Version)
	}
	project := s.Project(t)
	e := &endpoint{effects: map[string]int{}, runs: map[string]int{}, pushes: map[string]int{}, changed: make(chan struct{}, 1)}
	store, err := memstore.New(nil)
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Handler: e, Store: store, Scope: "push"})
	require.NoError(t, err)
	b, err := p.Batches(onceq.BatchConfig{DeadLetter: dead})
	require.NoError(t, err)
	base := "http://" + s.Addr + "/v1/"
	topic, subscription := "projects/"+project+"/topics/jobs", "projects/"+project+"/subscriptions/jobs"
	e.h, err = pubsubpush.New(b, pubsubpush.Options{Auth: pubsubpush.None{}, AckDeadline: 10 * time.Second, Subscription: subscription})
	require.NoError(t, err)
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)

	rest(t, http.MethodPut, base+topic, map[string]any{})
	rest(t, http.MethodPut, base+subscription, map[string]any{
		"topic": topic, "ackDeadlineSeconds": 10, "pushConfig": map[string]any{"pushEndpoint": server.URL + "/push"},
	})
	var messages []map[string]any
	for i := range jobs {
		messages = append(messages, message(t, fmt.Sprint(i)))
	}
	messages = append(messages, messages...) // a publisher that was not sure
	messages = append(messages, message(t, "once"), message(t, "lost"))
	rest(t, http.MethodPost, base+topic+":publish", map[string]any{"messages": messages})

	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	for !e.complete() {
		select {
		case <-e.changed:
		case <-ctx.Done():
			require.Fail(t, "not all jobs were done", e.state())
		}
	}
	drain, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, e.h.Shutdown(drain))
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, n := range e.effects {
		require.Equal(t, 1, n, "the effect of %s", name)
	}
	require.Equal(t, 2, e.runs["once"])
	require.Equal(t, 1, e.runs["lost"])
}

// complete reports whether each job has had its effect, each message was pushed, and the one whose
// answer was lost has come again.
func (e *endpoint) complete() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.effects) == jobs+2 && len(e.pushes) == 2*jobs+2 && e.pushes[e.lost] > 1
}

func (e *endpoint) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d effects, %d messages pushed, the lost one %d times; runs: %v", len(e.effects), len(e.pushes), e.pushes[e.lost], e.runs)
	return b.String()
}
