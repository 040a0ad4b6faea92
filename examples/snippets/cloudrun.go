package snippets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/adapters/gcppubsub/pubsubpush"
	"github.com/onceq/onceq/broker"
)

func drain(h *pubsubpush.Handler, s *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Second)
	defer cancel()
	err := h.Shutdown(ctx)
	last, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if s.Shutdown(last) != nil {
		// The pushes are answered. A connection that asked nothing yet counts as busy for 5 s.
		return errors.Join(err, s.Close())
	}
	return err
}

func pushes(batches *onceq.Batches) (*pubsubpush.Handler, error) {
	return pubsubpush.New(batches, pubsubpush.Options{
		Auth: pubsubpush.OIDC{
			Audience:       "https://orders-x.run.app/push",
			ServiceAccount: "pusher@p.iam.gserviceaccount.com",
		},
		AckDeadline: 60 * time.Second,
	})
}

func push(h http.Handler, id string, body []byte) (status int) {
	envelope, _ := json.Marshal(map[string]any{
		"subscription": "projects/p/subscriptions/orders",
		"message": map[string]any{
			"messageId": id,
			"data":      body, // json writes bytes in base64, as Pub/Sub does
			"attributes": map[string]string{ // as onceq's Send sets it
				broker.MetaAttribute: broker.EncodeMeta(&broker.Meta{ID: id, Type: "order", Key: "A-1"}),
			},
		},
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/push", bytes.NewReader(envelope)))
	return w.Code
}
