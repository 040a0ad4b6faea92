package testgcp

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/must"
)

func TestFirestoreVersion(t *testing.T) {
	for root, want := range map[string]string{"Ok\n": FirestoreEmulator, "hello": "Firestore"} {
		addr := server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, root)
				return
			}
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/google.firestore.v1.Firestore/ListCollectionIds" ||
				string(body) != frame(first("projects/onceq-start/databases/(default)/documents")) || r.Header.Get("Authorization") != "Bearer owner" {
				t.Errorf("%s, %q", r.URL, body)
			}
			answer(w, frame(""), "0", "")
		})
		if got, err := firestoreVersion(t.Context(), addr, ""); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	addr := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, "", "12", "no such method") })
	if got, err := firestoreVersion(t.Context(), addr, ""); err == nil || !strings.Contains(err.Error(), "status 12: no such method") {
		t.Errorf("a server of Pub/Sub: %q, %v", got, err)
	}
}

// TestFirestore: where there is an emulator, a test has a project of its own there, whose documents
// are gone afterwards.
func TestFirestore(t *testing.T) {
	s := NewFirestore(t)
	if s.Kind != "emulator" {
		t.Skip("what a test leaves at " + s.Version + " is its own affair")
	}
	const document = `{"fields":{"a":{"stringValue":"x"}}}`
	var path string
	ask := func(method string) (status int) {
		req := must.Get(http.NewRequestWithContext(context.Background(), method, path, strings.NewReader(document)))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	t.Run("a test", func(t *testing.T) {
		path = "http://" + s.Addr + "/v1/projects/" + s.Project(t) + "/databases/(default)/documents/c/d"
		if made, there := ask(http.MethodPatch), ask(http.MethodGet); made != http.StatusOK || there != http.StatusOK {
			t.Errorf("made %d, there %d", made, there)
		}
	})
	if code := ask(http.MethodGet); code != http.StatusNotFound {
		t.Errorf("it was left behind: %d", code)
	}
}
