package webonceq_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/ops"
)

// A proxy has checked who asks, and says so in a header. Ana is on call; all others look.
func Example() {
	queue, err := membroker.New(&membroker.Options{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	store, err := memstore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	o, err := ops.New([]ops.Target{{Name: "orders", Queue: queue, Store: store}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	onCall := func(name string) webonceq.Access {
		if name == "ana" {
			return webonceq.Access{May: webonceq.All}
		}
		return webonceq.Access{May: webonceq.Look}
	}
	proxy := netip.MustParsePrefix("10.0.0.0/24")
	page, err := webonceq.New(o, &webonceq.Options{
		Title: "prod", Base: "/onceq", Hosts: []string{"ops.example"},
		Access: webonceq.HeaderAccess("X-Forwarded-User", []netip.Prefix{proxy}, onCall),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/onceq/", page)

	for _, name := range []string{"ana", "ben"} {
		r := httptest.NewRequest(http.MethodGet, "/onceq/q/orders", nil)
		r.Host, r.RemoteAddr = "ops.example", "10.0.0.7:4711"
		r.Header.Set("X-Forwarded-User", name)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(name, w.Code, "may pause:", strings.Contains(w.Body.String(), ">Pause</button>"))
	}
	// Output:
	// ana 200 may pause: true
	// ben 200 may pause: false
}
