//go:build nofirestore

package places

import (
	"context"
	"errors"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
)

func (p *Places) firestore(context.Context, settings.StoreURL) (dedupe.Store, error) {
	return nil, errors.New("this onceq was built without Firestore (tag nofirestore)")
}
