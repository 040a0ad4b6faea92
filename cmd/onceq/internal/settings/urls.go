package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// This file owns the URLs of queues and stores: what may stand in them, and what people may see of
// them. Load calls it for each line of the file, and the package places for what it opens. An error
// names the URL without its password.

// The kinds of queues and stores.
const (
	SQS       = "sqs"
	PubSub    = "gcppubsub"
	Postgres  = "postgres"
	SQLite    = "sqlite"
	DynamoDB  = "dynamodb"
	Firestore = "firestore"
)

// A QueueURL is where a queue is.
type QueueURL struct {
	Kind, Name      string
	Region, Account string // SQS; may be empty
	URL             string // SQS: the queue's own URL, where it was given
	Endpoint        string // SQS: a server that is not AWS
	Project         string // Pub/Sub
	Subscription    string // Pub/Sub; may be empty
	Topic           string // Pub/Sub; may be empty
	Ordered         bool   // Pub/Sub: the subscription has message ordering
	Attempts        bool   // Pub/Sub: it has a dead-letter policy
	DatabaseQueue          // in a database
}

const wantQueue = "want sqs://NAME, https://sqs.…, gcppubsub://PROJECT/SUBSCRIPTION, postgres-queue://…/DATABASE/QUEUE, sqlite-queue:///FILE/QUEUE"

// ParseQueue reads the URL of a queue.
func ParseQueue(s string) (QueueURL, error) {
	bad := func(why string) (QueueURL, error) {
		return QueueURL{}, fmt.Errorf("queue %q: %s", Mask(s), cmp.Or(why, wantQueue))
	}
	if strings.HasPrefix(s, PostgresQueue+"://") {
		at, name, why := parsePostgresQueue(s)
		if why != "" {
			return bad(why)
		}
		return QueueURL{Kind: PostgresQueue, Name: name, DatabaseQueue: at}, nil
	}
	if strings.HasPrefix(s, SQLiteQueue+"://") {
		at, name, why := parseSQLiteQueue(s)
		if why != "" {
			return bad(why)
		}
		return QueueURL{Kind: SQLiteQueue, Name: name, DatabaseQueue: at}, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return bad("")
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if u.Path == "" || u.Path == "/" {
		parts = nil
	}
	if slices.Contains(parts, "") {
		return bad("")
	}
	q := QueueURL{Kind: SQS}
	switch u.Scheme {
	case "sqs":
		all := append([]string{u.Host}, parts...)
		if len(all) > 3 {
			return bad("want sqs://[REGION/[ACCOUNT/]]NAME")
		}
		q.Name = all[len(all)-1]
		if len(all) > 1 {
			q.Region = all[0]
		}
		if len(all) > 2 {
			q.Account = all[1]
			if len(q.Account) != 12 || strings.Trim(q.Account, "0123456789") != "" {
				return bad(fmt.Sprintf("the account %q has not 12 digits", q.Account))
			}
		}
		return q, onlyQuery(u, s)
	case "https", "http":
		if len(parts) != 2 {
			return bad("want https://sqs.REGION.amazonaws.com/ACCOUNT/NAME; a server that is not AWS is sqs+http://HOST/NAME")
		}
		q.URL, q.Account, q.Name = s, parts[0], parts[1]
		return q, onlyQuery(u, s)
	case "sqs+http", "sqs+https":
		if len(parts) < 1 || len(parts) > 2 {
			return bad("want sqs+http://HOST:PORT/NAME")
		}
		q.Endpoint = strings.TrimPrefix(u.Scheme, "sqs+") + "://" + u.Host
		q.Name = parts[len(parts)-1]
		if len(parts) == 2 {
			q.Account = parts[0]
		}
		q.Region = u.Query().Get("region")
		return q, onlyQuery(u, s, "region")
	case PubSub:
		q = QueueURL{Kind: PubSub, Project: u.Host}
		if len(parts) > 1 {
			return bad("want gcppubsub://PROJECT/SUBSCRIPTION?topic=TOPIC")
		}
		if len(parts) == 1 {
			q.Subscription = parts[0]
		}
		v := u.Query()
		q.Topic = v.Get("topic")
		if q.Topic == "" && q.Subscription == "" {
			return bad("want gcppubsub://PROJECT/SUBSCRIPTION?topic=TOPIC")
		}
		q.Name = cmp.Or(q.Subscription, q.Topic)
		for name, to := range map[string]*bool{"ordered": &q.Ordered, "attempts": &q.Attempts} {
			switch v.Get(name) {
			case "", "false":
			case "true":
				*to = true
			default:
				return bad(name + " is neither true nor false")
			}
		}
		return q, onlyQuery(u, s, "topic", "ordered", "attempts")
	}
	return bad("")
}

// A StoreURL is where a store is.
type StoreURL struct {
	Kind string
	// URL is what the database's client takes: our own parameters are gone.
	URL   string
	Table string // may be empty; Firestore: the collection
	Path  string // SQLite
	// Project and Database are Firestore's.
	Project, Database string
	// Region and Endpoint are DynamoDB's.
	Region, Endpoint string
	// TTLAttribute is DynamoDB's and Firestore's, and Index, of keys that want attention,
	// DynamoDB's. They may be empty.
	TTLAttribute, Index string
}

const wantStore = "want postgres://…, sqlite:///path, dynamodb://TABLE, firestore://PROJECT/DATABASE/COLLECTION"

// ParseStore reads the URL of a store.
func ParseStore(s string) (StoreURL, error) {
	bad := func(why string) (StoreURL, error) {
		return StoreURL{}, fmt.Errorf("store %q: %s", Mask(s), cmp.Or(why, wantStore))
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" {
		return bad("")
	}
	v := u.Query()
	st := StoreURL{Kind: u.Scheme, Table: v.Get("onceq.table")}
	v.Del("onceq.table")
	switch u.Scheme {
	case "postgres", "postgresql":
		st.Kind = Postgres
		for name := range v {
			if strings.HasPrefix(name, "onceq.") {
				return bad(fmt.Sprintf("unknown parameter %s%s", name, DidYouMean(name, []string{"onceq.table"})))
			}
		}
		u.RawQuery = v.Encode()
		st.URL = u.String()
		return st, nil
	case SQLite:
		if u.Host != "" {
			return bad("want sqlite:///absolute/path or sqlite:///./relative/path")
		}
		if u.Path == "" || strings.HasSuffix(u.Path, "/") {
			return bad("want sqlite:///path/of/the/file")
		}
		st.Path = filePath(u.Path)
		return st, onlyStoreQuery(u, s, "onceq.table")
	case DynamoDB:
		if u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return bad("want dynamodb://TABLE?region=REGION")
		}
		st.Table = u.Host
		st.Region, st.Endpoint, st.TTLAttribute = v.Get("region"), v.Get("endpoint"), v.Get("ttl")
		st.Index = v.Get("index")
		if st.Endpoint != "" && !strings.HasPrefix(st.Endpoint, "http://") && !strings.HasPrefix(st.Endpoint, "https://") {
			return bad("endpoint: want http://HOST:PORT")
		}
		return st, onlyStoreQuery(u, s, "region", "endpoint", "ttl", "index")
	case Firestore:
		database, collection, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
		if u.Host == "" || database == "" || collection == "" {
			return bad("want firestore://PROJECT/DATABASE/COLLECTION; the first database of a project is (default)")
		}
		st.Project, st.Database, st.Table, st.TTLAttribute = u.Host, database, collection, v.Get("ttl")
		return st, onlyStoreQuery(u, s, "ttl")
	}
	return bad("")
}

func onlyQuery(u *url.URL, s string, allowed ...string) error {
	return only("queue", u, s, allowed)
}

func onlyStoreQuery(u *url.URL, s string, allowed ...string) error {
	return only("store", u, s, allowed)
}

// only refuses parameters that nobody reads, because they are mostly slips.
func only(what string, u *url.URL, s string, allowed []string) error {
	for name := range u.Query() {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("%s %q: unknown parameter %s%s", what, Mask(s), name, DidYouMean(name, allowed))
		}
	}
	return nil
}

// secrets are parameters of a URL that hold one.
var secrets = []string{"password", "sslpassword", "sslkey", "passfile"}

// HasPassword reports whether a URL holds one.
func HasPassword(s string) bool { return Mask(s) != s }

// Mask is the URL as people may see it: postgres://app:***@host/db.
func Mask(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	rest, query, asked := strings.Cut(rest, "?")
	authority, tail, slash := strings.Cut(rest, "/")
	// of a password with a slash or a question mark in it all is hidden up to the host
	if at := strings.LastIndexByte(s, '@'); at > len(scheme)+3 {
		if user := s[len(scheme)+3 : at]; strings.Contains(user, ":") && !strings.Contains(authority, "@") {
			name, _, _ := strings.Cut(user, ":")
			return scheme + "://" + name + ":***@" + Mask("x://" + s[at+1:])[len("x://"):]
		}
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if name, _, has := strings.Cut(authority[:at], ":"); has {
			authority = name + ":***" + authority[at:]
		}
	}
	out := scheme + "://" + authority
	if slash {
		out += "/" + tail
	}
	if !asked {
		return out
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		name, _, has := strings.Cut(p, "=")
		if plain, err := url.QueryUnescape(name); has && err == nil && slices.Contains(secrets, strings.ToLower(plain)) {
			params[i] = name + "=***"
		}
	}
	return out + "?" + strings.Join(params, "&")
}
