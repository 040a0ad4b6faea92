package ops

// SetSortRoom sets how many bytes of rows a reconciliation keeps in memory. It answers the old one.
func SetSortRoom(n int) int {
	was := sortRoom
	sortRoom = n
	return was
}
