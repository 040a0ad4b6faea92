package httponceq_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/httponceq"
	"github.com/onceq/onceq/dedupe/memstore"
)

// pay charges a card. The payment API gets a key of its own, which is equal however often this
// request runs.
func pay(w http.ResponseWriter, r *http.Request) {
	key := httponceq.Job(r.Context()).EffectKey("charge")
	fmt.Println("charging, with a key of", len(key), "digits")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "charge-1")
}

// whoAsks is the client whose credentials a request has; a real one checks the password.
func whoAsks(r *http.Request) (name string, ok bool) {
	name, _, ok = r.BasicAuth()
	return name, ok
}

// A client has lost the answer and asks again: it gets the first one, and the card is charged once.
func Example() {
	store, err := memstore.New(nil) // a service that restarts has a durable one
	if err != nil {
		log.Fatal(err)
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{Store: store, Scope: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	once, err := httponceq.New(p, httponceq.Options{Client: whoAsks})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(http.HandlerFunc(pay)))

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"cents": 995}`))
		r.SetBasicAuth("alice", "secret")
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotency-Replayed"))
	}
	// Output:
	// charging, with a key of 32 digits
	// 201 charge-1, replayed: ""
	// 201 charge-1, replayed: "true"
}
