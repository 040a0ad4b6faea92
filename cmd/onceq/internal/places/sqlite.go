//go:build !nosqlite

package places

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/onceq/onceq/cmd/onceq/internal/settings"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/sqlitestore"
)

func (p *Places) sqlite(ctx context.Context, s settings.StoreURL) (dedupe.Store, error) {
	if _, err := os.Stat(s.Path); err != nil {
		return nil, err // a slip in the name shall not make a file
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(s.Path))
	if err != nil {
		return nil, err
	}
	p.closing(db.Close)
	st, err := sqlitestore.New(db, &sqlitestore.Options{Table: s.Table})
	if err != nil {
		return nil, err
	}
	p.closing(st.Close)
	if _, err := st.Get(ctx, []dedupe.Key{{Scope: "onceq", Key: "is the table there"}}); err != nil {
		if text := err.Error(); strings.Contains(text, "no such table") || strings.Contains(text, "no such column") {
			return nil, fmt.Errorf("%w (%w)", ErrOld, err)
		}
		return nil, err
	}
	return st, nil
}
