package localstack

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/onceq/onceq/sqsfake"
)

// serveFake serves sqsfake in this process.
func serveFake(ctx context.Context, s *site) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	fake := sqsfake.New(nil)
	fake.URL = "http://" + l.Addr().String()
	h := &http.Server{Handler: fake, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.Serve(l) }() // it ends with the site; before that, a test sees that nobody answers
	s.onClose(func() {
		fake.Close()
		_ = h.Close()
	})
	return fake.URL, nil
}
