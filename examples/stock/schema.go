package main

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ownSchema makes a schema for this run, in which everything is made, and drops it in the end.
func ownSchema(ctx context.Context, url string) (pool *pgxpool.Pool, drop func()) {
	name := "onceq_stock_" + strings.ToLower(rand.Text()[:8])
	c := must(pgxpool.ParseConfig(url))
	c.ConnConfig.RuntimeParams["search_path"] = name
	pool = must(pgxpool.NewWithConfig(ctx, c))
	must(pool.Exec(ctx, "CREATE SCHEMA "+name))
	return pool, func() {
		must(pool.Exec(ctx, "DROP SCHEMA "+name+" CASCADE"))
		pool.Close()
	}
}
