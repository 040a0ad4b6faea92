package localstack

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

// TestIdentified: a LocalStack that serves SQS before it can say what it is is waited for, so that the
// list of its known differences is the one that is asked.
func TestIdentified(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost: // ListQueues
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			_, _ = w.Write([]byte("{}"))
		case r.URL.Path != "/_localstack/health":
			http.NotFound(w, r)
		default:
			switch asked.Add(1) {
			case 1:
				http.NotFound(w, r)
			case 2:
				http.Error(w, "not yet", http.StatusServiceUnavailable)
			default:
				_, _ = w.Write([]byte(`{"version":"4.0","services":{"sqs":"running"}}`))
			}
		}
	}))
	defer s.Close()
	url, err := identified(t.Context(), []string{s.URL}, testaws.LocalStackName, time.Minute)
	if err != nil || url != s.URL {
		t.Fatalf("identified %q, %v", url, err)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times for its health, want 3", n)
	}
	asked.Store(1) // it fails now
	if version, err := testaws.SQSBackend.Version(t.Context(), s.URL, ""); err == nil {
		t.Errorf("a LocalStack that fails was taken for %s", version)
	}
	asked.Store(0) // another server has no health
	if version, err := testaws.SQSBackend.Version(t.Context(), s.URL, ""); err != nil || version != "SQS" {
		t.Errorf("another server is %q, %v", version, err)
	}
}
