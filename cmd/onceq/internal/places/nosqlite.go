//go:build nosqlite

package places

import (
	"context"
	"errors"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
)

var errNoSQLite = errors.New("this onceq was built without SQLite (tag nosqlite)")

func (p *Places) sqlite(context.Context, settings.StoreURL) (dedupe.Store, error) {
	return nil, errNoSQLite
}

func (p *Places) sqliteQueue(context.Context, settings.QueueURL) (broker.Broker, error) {
	return nil, errNoSQLite
}
