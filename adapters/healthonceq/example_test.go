package healthonceq_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/healthonceq"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/dedupe/memstore"
)

// A worker that has not begun is live, and not ready.
func Example() {
	queue, err := membroker.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := memstore.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := onceq.NewProcessor(onceq.ProcessorConfig{
		Scope: "orders", Store: store,
		Handler: onceq.HandlerFunc(func(context.Context, *onceq.Job) error { return nil }),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, err := p.Worker(queue, onceq.WorkerConfig{DeadLetter: onceq.KeepInQueue})
	if err != nil {
		fmt.Println(err)
		return
	}

	probes := healthonceq.Handler(worker) // http.ListenAndServe(":8080", probes) beside worker.Run(ctx)
	for _, path := range []string{"/livez", "/readyz"} {
		answer := httptest.NewRecorder()
		probes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Print(path, " ", answer.Code, " ", answer.Body)
	}
	// Output:
	// /livez 200 ok
	// /readyz 503 stopped: Run is not under way
}
