package ops

// SetSortRoom sets how many bytes of rows a reconciliation keeps in memory, and answers what it was.
func SetSortRoom(n int) int {
	was := sortRoom
	sortRoom = n
	return was
}
