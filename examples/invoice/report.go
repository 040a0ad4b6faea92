package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
)

// report prints the books.
func report(ctx context.Context, out io.Writer, db *sql.DB) {
	fmt.Fprintln(out, "\nthe books:")
	rows := must(db.QueryContext(ctx, `SELECT number, order_id, cents FROM invoices ORDER BY number`))
	defer rows.Close()
	for rows.Next() {
		var number, cents int
		var order string
		check(rows.Scan(&number, &order, &cents))
		fmt.Fprintf(out, "  invoice %d  %s  %4d cents\n", number, order, cents)
	}
	check(rows.Err())
}
