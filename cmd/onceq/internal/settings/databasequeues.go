package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// PostgresQueue is the kind of a queue in a table of PostgreSQL, and the scheme of its URL.
const PostgresQueue = "postgres-queue"

// DatabaseQueue is where the table of a queue is, in a database.
type DatabaseQueue struct {
	// URL is what the database's client takes: the queue and our own parameters are gone.
	URL   string
	Table string // may be empty
}

const wantPostgresQueue = "want postgres-queue://USER@HOST/DATABASE/QUEUE?onceq.table=TABLE"

// parsePostgresQueue reads the URL of a queue in PostgreSQL: that of the database, with another
// scheme, and the queue's name behind the database's. In the name, %2F stands for a slash.
func parsePostgresQueue(s string) (QueueURL, error) {
	bad := func(why string) (QueueURL, error) {
		return QueueURL{}, fmt.Errorf("queue %q: %s", Mask(s), cmp.Or(why, wantPostgresQueue))
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return bad("")
	}
	database, name, ok := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if !ok || database == "" || name == "" || strings.Contains(name, "/") {
		return bad("")
	}
	q := QueueURL{Kind: PostgresQueue}
	if q.Name, err = url.PathUnescape(name); err != nil {
		return bad("")
	}
	v := u.Query()
	q.Table = v.Get("onceq.table")
	v.Del("onceq.table")
	for name := range v {
		if strings.HasPrefix(name, "onceq.") {
			return bad(fmt.Sprintf("unknown parameter %s%s", name, DidYouMean(name, []string{"onceq.table"})))
		}
	}
	if u.Path, err = url.PathUnescape("/" + database); err != nil {
		return bad("")
	}
	u.Scheme, u.RawPath, u.RawQuery = "postgres", "/"+database, v.Encode()
	q.DatabaseQueue.URL = u.String()
	return q, nil
}
