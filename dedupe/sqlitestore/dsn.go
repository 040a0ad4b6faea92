package sqlitestore

import "strings"

// DSN is a data source name for the file at path, as the drivers modernc.org/sqlite ("sqlite") and
// github.com/mattn/go-sqlite3 ("sqlite3") both read it: write-ahead log, every commit on the disk
// before it is answered, transactions that begin IMMEDIATE, and 1 s of waiting for a lock.
func DSN(path string) string {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + escaped + "?_busy_timeout=1000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate"
}
