package settings

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// PostgresQueue is the kind of a queue in a table of PostgreSQL, and the scheme of its URL.
const PostgresQueue = "postgres-queue"

// SQLiteQueue is the kind of a queue in a table of a SQLite file, and the scheme of its URL.
const SQLiteQueue = "sqlite-queue"

// DatabaseQueue is where the table of a queue is, in a database.
type DatabaseQueue struct {
	// URL is what the database's client takes: the queue and our own parameters are gone.
	URL   string
	Path  string // SQLite: the file
	Table string // may be empty
}

const wantSQLiteQueue = "want sqlite-queue:///path/of/the/file/QUEUE?onceq.table=TABLE; a relative path begins with /./"

// parseSQLiteQueue reads the URL of a queue in SQLite: that of the file, with another scheme, and
// the queue's name behind the file's. In the name, %2F stands for a slash. why is not empty where
// it is none.
func parseSQLiteQueue(s string) (q DatabaseQueue, queue, why string) {
	u, err := url.Parse(s)
	if err != nil || u.Host != "" || u.User != nil || u.Fragment != "" {
		return q, "", wantSQLiteQueue
	}
	for name := range u.Query() {
		if name != "onceq.table" {
			return q, "", fmt.Sprintf("unknown parameter %s%s", name, DidYouMean(name, []string{"onceq.table"}))
		}
	}
	all := u.EscapedPath()
	cut := max(strings.LastIndexByte(all, '/'), 0)
	file, errFile := url.PathUnescape(all[:cut])
	queue, errQueue := url.PathUnescape(strings.TrimPrefix(all[cut:], "/"))
	if errFile != nil || errQueue != nil || queue == "" || strings.HasSuffix(file, "/") || file == "/." || file == "" {
		return q, "", wantSQLiteQueue
	}
	return DatabaseQueue{Path: filePath(file), Table: u.Query().Get("onceq.table")}, queue, ""
}

const wantPostgresQueue = "want postgres-queue://USER@HOST/DATABASE/QUEUE?onceq.table=TABLE"

// parsePostgresQueue reads the URL of a queue in PostgreSQL: that of the database, with another
// scheme, and the queue's name behind the database's. In the name, %2F stands for a slash. why is
// not empty where it is none.
func parsePostgresQueue(s string) (q DatabaseQueue, queue, why string) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return q, "", wantPostgresQueue
	}
	database, name, ok := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if !ok || database == "" || name == "" || strings.Contains(name, "/") {
		return q, "", wantPostgresQueue
	}
	v := u.Query()
	q.Table = v.Get("onceq.table")
	v.Del("onceq.table")
	for name := range v {
		if strings.HasPrefix(name, "onceq.") {
			return q, "", fmt.Sprintf("unknown parameter %s%s", name, DidYouMean(name, []string{"onceq.table"}))
		}
	}
	queue, errQueue := url.PathUnescape(name)
	if u.Path, err = url.PathUnescape("/" + database); err != nil || errQueue != nil {
		return q, "", wantPostgresQueue
	}
	u.Scheme, u.RawPath, u.RawQuery = "postgres", "/"+database, v.Encode()
	q.URL = u.String()
	return q, queue, ""
}

// filePath is the file of a URL's path: behind /./ it is relative to the working directory.
func filePath(p string) string {
	if rest, ok := strings.CutPrefix(p, "/./"); ok {
		return path.Clean(rest)
	}
	return path.Clean(p)
}
