package records

// IsSQLPool knows a *sql.DB, and what has it embedded, by a method that no transaction and no
// connection has: it would commit each statement by itself.
func IsSQLPool(tx any) bool {
	_, ok := tx.(interface{ SetMaxOpenConns(n int) })
	return ok
}
