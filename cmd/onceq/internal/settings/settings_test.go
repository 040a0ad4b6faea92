package settings

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func env(pairs ...string) Env {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "onceq.yaml")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const whole = `# the operators' own
default: prod
profiles:
  prod:
    protect: true
    store: env:STORE
    queues:
      orders:
        url: sqs://orders
        dead: sqs://orders-dead
        known: orders-v2
        scopes: [orders, refunds]
        max_attempts: 10
        retention: 31d
      mails: sqs://eu-central-1/123456789012/mails
    links: {logs: "https://logs.example/?q={key}"}
    letter_keys: [env:KEY]
  staging:
    store: sqlite:///tmp/keys.db
`

func TestLoad(t *testing.T) {
	path := write(t, whole, 0o644)
	f, err := Load(env(EnvConfig, path, "STORE", "postgres://app:secret@db/x", "KEY", strings.Repeat("k", 32)), "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Pick("")
	if err != nil || p.Name != "prod" || !p.Protect || p.Store != "postgres://app:secret@db/x" || len(p.LetterKeys) != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	q, err := p.Find("orders")
	if err != nil || q.Known != "orders-v2" || q.MaxAttempts != 10 || q.Retention != 31*24*time.Hour || len(q.Scopes) != 2 || q.Dead != "sqs://orders-dead" {
		t.Errorf("%+v %v", q, err)
	}
	if q, err := p.Find("mails"); err != nil || q.URL != "sqs://eu-central-1/123456789012/mails" {
		t.Errorf("%+v %v", q, err)
	}
	if got := strings.Join(p.Order, " "); got != "orders mails" {
		t.Errorf("order %q", got)
	}
	if _, err := p.Find("order"); err == nil || !strings.Contains(err.Error(), "did you mean orders?") {
		t.Error(err)
	}
	if _, err := f.Pick("prot"); err == nil || !strings.Contains(err.Error(), "did you mean prod?") {
		t.Error(err)
	}
}

// TestPlaces: the file is the one that the environment names, else the user's. One of the folder is
// neither read nor passed over.
func TestPlaces(t *testing.T) {
	home, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	own := filepath.Join(home, ".config", "onceq")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	load := func(want string, pairs ...string) {
		t.Helper()
		f, err := Load(env(pairs...), home)
		if err != nil || f.Path != want || f.Here != (want != "" && !filepath.IsAbs(want)) {
			t.Errorf("%+v %v, want %q", f, err, want)
		}
	}
	refused := func(want string) {
		t.Helper()
		if _, err := Load(env(), home); !errors.Is(err, ErrUnasked) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	load("")
	put := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("profiles: {a: {}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(own, "config.yaml")
	put("onceq.yaml")
	refused("set ONCEQ_CONFIG=./onceq.yaml to use it, or ONCEQ_CONFIG=" + os.DevNull + " to work without it")
	load(os.DevNull, EnvConfig, os.DevNull)
	put(mine)
	refused("set ONCEQ_CONFIG=./onceq.yaml to use it, or ONCEQ_CONFIG=" + mine)
	load("./onceq.yaml", EnvConfig, "./onceq.yaml")
	load(mine, EnvConfig, mine)
	if err := os.Remove("onceq.yaml"); err != nil {
		t.Fatal(err)
	}
	load(mine)
	if err := os.Symlink("nowhere", "onceq.yaml"); err == nil {
		refused("set ONCEQ_CONFIG")
	}
	named := filepath.Join(home, "named.yaml")
	put(named)
	load(named, EnvConfig, named)
	if _, err := Load(env(EnvConfig, filepath.Join(home, "absent.yaml")), home); err == nil {
		t.Error("a file that is named and absent is an error")
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"unknown field":        {"profiles:\n  a:\n    queuess: {}\n", ":3: queuess: unknown field: did you mean queues?"},
		"unknown queue field":  {"profiles:\n  a:\n    queues:\n      o:\n        ulr: sqs://o\n", ":5: ulr: unknown field: did you mean url?"},
		"unknown at the top":   {"profile: {}\n", ":1: profile: unknown field: did you mean profiles?"},
		"default that is none": {"default: prd\nprofiles:\n  prod: {}\n", `:1: there is no profile "prd": did you mean prod?`},
		"twice":                {"profiles:\n  a: {protect: true, protect: false}\n", "protect"},
		"not a flag":           {"profiles:\n  a:\n    protect: maybe\n", `:3: "maybe" is neither true nor false`},
		"queue's URL":          {"profiles:\n  a:\n    queues:\n      o: sqs:/orders\n", `:4: queue "sqs:/orders": want sqs://NAME, https://sqs.…, gcppubsub://PROJECT/SUBSCRIPTION`},
		"store's URL":          {"profiles:\n  a:\n    store: mysql://x\n", `:3: store "mysql://x": want postgres://…, sqlite:///path, dynamodb://TABLE, firestore://PROJECT`},
		"env that is not set":  {"profiles:\n  a:\n    store: env:NOWHERE\n", ":3: the environment has no NOWHERE"},
		"no url":               {"profiles:\n  a:\n    queues:\n      o: {dead: sqs://d}\n", ": queue o has no url"},
		"attempts":             {"profiles:\n  a:\n    queues:\n      o: {url: sqs://o, max_attempts: 0}\n", `max_attempts: "0" is not a number from 1 to 1000`},
		"retention":            {"profiles:\n  a:\n    queues:\n      o: {url: sqs://o, retention: 31}\n", "retention: 31 has no unit; want 31m, 1h"},
		"short letter key":     {"profiles:\n  a:\n    letter_keys: [short]\n", ":3: letter_keys: a key of 5 bytes, want 32 or more"},
		"no mapping":           {"profiles: [a]\n", ":1: profiles: want names with values"},
		"no YAML":              {"profiles: {\n", "onceq.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(env(EnvConfig, write(t, c.text, 0o600)), "")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestPassword: a file that others may read must not hold one, and no error shows it.
func TestPassword(t *testing.T) {
	text := "profiles:\n  a:\n    store: postgres://app:secret@db/x\n"
	path := write(t, text, 0o640)
	_, err := Load(env(EnvConfig, path), "")
	if err == nil || !strings.Contains(err.Error(), ":3: a password stands here") || !strings.Contains(err.Error(), "mode 0640") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(env(EnvConfig, path), ""); err != nil {
		t.Error(err)
	}
	if _, err := Load(env(EnvConfig, write(t, strings.Replace(text, "app:secret@", "app@", 1), 0o644)), ""); err != nil {
		t.Error(err)
	}
}

// TestSecretsInTheFile: a key that signs letters is worth as much as a password, wherever it
// stands.
func TestSecretsInTheFile(t *testing.T) {
	key := strings.Repeat("k", 32)
	for text, what := range map[string]string{
		"profiles:\n  a:\n    letter_keys: [" + key + "]\n":                           ":3: a letter key",
		"profiles:\n  a:\n    letter_keys: " + key + "\n":                             ":3: a letter key",
		"profiles:\n  a:\n    letter_keys: ['env:KEY', " + key + "]\n":                ":3: a letter key",
		"profiles:\n  a:\n    letter_keys:\n    - env:KEY\n    - " + key + "\n":       ":5: a letter key",
		"profiles:\n  a: {letter_keys: &k ['" + key + "']}\n  b: {letter_keys: *k}\n": ":2: a letter key",
		"profiles:\n  a: {links: {x: &s 'postgres://a:pw@h/d'}, store: *s}\n":         ":2: a password",
		"profiles:\n  a: {links: {x: &s 'env:STORE'}, store: *s}\n":                   "",
		"profiles:\n  a: {letter_keys: [env:KEY], store: env:STORE}\n":                "",
	} {
		e := func(path string) Env { return env(EnvConfig, path, "KEY", key, "STORE", "postgres://a:pw@h/d") }
		_, err := Load(e(write(t, text, 0o644)), "")
		if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what+" stands here") || strings.Contains(err.Error(), key)) {
			t.Errorf("%s: %v, want %s", text, err, what)
		}
		if _, err := Load(e(write(t, text, 0o600)), ""); err != nil {
			t.Error(err)
		}
	}
}

// TestWriters: a file says where acts go, so nobody may write it but its owner, alone or through a
// group that has no other member.
func TestWriters(t *testing.T) {
	for _, c := range []struct {
		mode fs.FileMode
		own  bool
		want string
	}{
		{0o600, false, ""},
		{0o644, false, ""},
		{0o666, true, "others"},
		{0o602, true, "others"},
		{0o664, true, ""},
		{0o664, false, "its group"},
		{0o620, false, "its group"},
		{fs.ModeNamedPipe | 0o666, false, ""},
	} {
		if got := writersOf(c.mode, c.own); got != c.want {
			t.Errorf("%v %v: %q, want %q", c.mode, c.own, got, c.want)
		}
	}
	a := accounts{
		func(id string) (*user.User, error) {
			if u := map[string]string{"1": "10", "2": "100"}[id]; u != "" {
				return &user.User{Uid: id, Gid: u, Username: "u" + id}, nil
			}
			return nil, user.UnknownUserError(id)
		},
		func(id string) (*user.Group, error) {
			if g := map[string]string{"10": "u1", "100": "users", "20": "u2"}[id]; g != "" {
				return &user.Group{Gid: id, Name: g}, nil
			}
			return nil, user.UnknownGroupIdError(id)
		},
	}
	for _, c := range []struct {
		uid, gid string
		want     bool
	}{{"1", "10", true}, {"1", "100", false}, {"2", "100", false}, {"2", "20", false}, {"3", "10", false}, {"1", "7", false}} {
		if got := a.private(c.uid, c.gid); got != c.want {
			t.Errorf("user %s, group %s: %v", c.uid, c.gid, got)
		}
	}
}

func TestQueueURLs(t *testing.T) {
	for s, want := range map[string]QueueURL{
		"sqs://orders":                           {Kind: SQS, Name: "orders"},
		"sqs://eu-central-1/orders.fifo":         {Kind: SQS, Region: "eu-central-1", Name: "orders.fifo"},
		"sqs://eu-central-1/123456789012/orders": {Kind: SQS, Region: "eu-central-1", Account: "123456789012", Name: "orders"},
		"sqs+http://127.0.0.1:9324/orders":       {Kind: SQS, Endpoint: "http://127.0.0.1:9324", Name: "orders"},
		"gcppubsub://p/sub?topic=t&ordered=true": {Kind: PubSub, Name: "sub", Project: "p", Subscription: "sub", Topic: "t", Ordered: true},
		"postgres-queue://app:x@h:1/db/orders?sslmode=disable": {
			Kind: PostgresQueue, Name: "orders", DatabaseQueue: DatabaseQueue{URL: "postgres://app:x@h:1/db?sslmode=disable"},
		},
		"postgres-queue:///my%20db/a%2Fb%20c?host=/run/pg&onceq.table=jobs.messages": {
			Kind: PostgresQueue, Name: "a/b c", DatabaseQueue: DatabaseQueue{URL: "postgres:///my%20db?host=%2Frun%2Fpg", Table: "jobs.messages"},
		},
		"sqlite-queue:///var/lib/orders.db/mail":                          {Kind: SQLiteQueue, Name: "mail", DatabaseQueue: DatabaseQueue{Path: "/var/lib/orders.db"}},
		"sqlite-queue:///./my%20jobs.db/a%2Fb?onceq.table=jobs_messages":  {Kind: SQLiteQueue, Name: "a/b", DatabaseQueue: DatabaseQueue{Path: "my jobs.db", Table: "jobs_messages"}},
		"gcppubsub://p?topic=t":                                           {Kind: PubSub, Name: "t", Project: "p", Topic: "t"},
		"https://sqs.eu-central-1.amazonaws.com/123456789012/orders":      {Kind: SQS, Account: "123456789012", Name: "orders", URL: "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"},
		"sqs+http://127.0.0.1:9324/000000000000/orders?region=eu-north-1": {Kind: SQS, Endpoint: "http://127.0.0.1:9324", Account: "000000000000", Name: "orders", Region: "eu-north-1"},
	} {
		if got, err := ParseQueue(s); err != nil || got != want {
			t.Errorf("%s: %+v %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"sqs:/orders":                           `queue "sqs:/orders": want sqs://NAME, https://sqs.…, gcppubsub://PROJECT/SUBSCRIPTION, postgres-queue://…/DATABASE/QUEUE, sqlite-queue:///FILE/QUEUE`,
		"sqs://":                                "want sqs://NAME",
		"kafka://x":                             "want sqs://NAME",
		"orders":                                "want sqs://NAME",
		"sqs://a/b/c/d":                         "want sqs://[REGION/[ACCOUNT/]]NAME",
		"sqs://eu-central-1/12/o":               `the account "12" has not 12 digits`,
		"sqs://orders?colour=red":               "unknown parameter colour",
		"gcppubsub://p/sub?topik=t":             "unknown parameter topik: did you mean topic?",
		"gcppubsub://p/a/b":                     "want gcppubsub://PROJECT/SUBSCRIPTION?topic=TOPIC",
		"gcppubsub://p":                         "want gcppubsub://PROJECT/SUBSCRIPTION?topic=TOPIC",
		"gcppubsub://p/s?ordered=1":             "ordered is neither true nor false",
		"https://sqs.eu/orders":                 "want https://sqs.REGION.amazonaws.com/ACCOUNT/NAME",
		"sqs+http://host/":                      "want sqs+http://HOST:PORT/NAME",
		"postgres-queue://u:secret@h/db":        `queue "postgres-queue://u:***@h/db": want postgres-queue://USER@HOST/DATABASE/QUEUE`,
		"postgres-queue://h/db/":                "want postgres-queue://USER@HOST/DATABASE/QUEUE",
		"postgres-queue://h//q":                 "want postgres-queue://USER@HOST/DATABASE/QUEUE",
		"postgres-queue://h/db/a/b":             "want postgres-queue://USER@HOST/DATABASE/QUEUE",
		"postgres-queue://h/db/q#x":             "want postgres-queue://USER@HOST/DATABASE/QUEUE",
		"postgres-queue://h/db/q?onceq.tabel=x": "unknown parameter onceq.tabel: did you mean onceq.table?",
		"sqlite-queue://orders.db/mail":         "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///mail":                  "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///./mail":                "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///orders.db/":            "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///orders.db//mail":       "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///orders.db/mail#x":      "want sqlite-queue:///path/of/the/file/QUEUE",
		"sqlite-queue:///o.db/mail?table=x":     "unknown parameter table",
		"sqs://u:p@orders":                      `queue "sqs://u:***@orders"`,
	} {
		if _, err := ParseQueue(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", s, err, want)
		}
	}
}

func TestStoreURLs(t *testing.T) {
	for s, want := range map[string]StoreURL{
		"postgres://app:x@db/jobs?onceq.table=jobs.records&sslmode=require": {Kind: Postgres, Table: "jobs.records", URL: "postgres://app:x@db/jobs?sslmode=require"},
		"postgresql:///jobs?host=/tmp":                                      {Kind: Postgres, URL: "postgresql:///jobs?host=%2Ftmp"},
		"sqlite:///var/lib/keys.db?onceq.table=records":                     {Kind: SQLite, Path: "/var/lib/keys.db", Table: "records"},
		"sqlite:///./keys.db":                                               {Kind: SQLite, Path: "keys.db"},
		"dynamodb://records?region=eu-central-1&endpoint=http://h:1&ttl=t":  {Kind: DynamoDB, Table: "records", Region: "eu-central-1", Endpoint: "http://h:1", TTLAttribute: "t"},
		"firestore://shop/(default)/onceq":                                  {Kind: Firestore, Project: "shop", Database: "(default)", Table: "onceq"},
		"firestore://shop/jobs/teams/a/onceq?ttl=gone":                      {Kind: Firestore, Project: "shop", Database: "jobs", Table: "teams/a/onceq", TTLAttribute: "gone"},
	} {
		if got, err := ParseStore(s); err != nil || got != want {
			t.Errorf("%s: %+v %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"mysql://x":                         "want postgres://…",
		"postgres://u:p@h/d?onceq.tabel=x":  `store "postgres://u:***@h/d?onceq.tabel=x": unknown parameter onceq.tabel: did you mean onceq.table?`,
		"sqlite://keys.db":                  "want sqlite:///absolute/path",
		"sqlite:///":                        "want sqlite:///path",
		"sqlite:///k.db?table=x":            "unknown parameter table",
		"dynamodb://":                       "want dynamodb://TABLE",
		"firestore://shop/onceq":            "want firestore://PROJECT/DATABASE/COLLECTION",
		"firestore:///jobs/onceq":           "want firestore://PROJECT/DATABASE/COLLECTION",
		"firestore://shop/jobs/onceq?tll=x": "unknown parameter tll: did you mean ttl?",
		"dynamodb://records?endpoint=h:1":   "endpoint: want http://HOST:PORT",
		"dynamodb://records?regoin=eu-west": "unknown parameter regoin: did you mean region?",
	} {
		if _, err := ParseStore(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", s, err, want)
		}
	}
}

func TestMask(t *testing.T) {
	for s, want := range map[string]string{
		"postgres://app:secret@db/x":                    "postgres://app:***@db/x",
		"postgres://app@db/x":                           "postgres://app@db/x",
		"postgres://db/x?user=a&password=secret&b=c":    "postgres://db/x?user=a&password=***&b=c",
		"postgres://db/x?PassWord=secret":               "postgres://db/x?PassWord=***",
		"postgres://app:se/cret@db/x":                   "postgres://app:***@db/x",
		"postgres://app:se?cret@db/x?password=s":        "postgres://app:***@db/x?password=***",
		"store postgres://app:secret@db/x: no answer":   "store postgres://app:***@db/x: no answer",
		"no URL: nothing to hide":                       "no URL: nothing to hide",
		"sqs+http://127.0.0.1:9324/orders":              "sqs+http://127.0.0.1:9324/orders",
		"postgres://app:p%40ss@db/x?sslpassword=q#tail": "postgres://app:***@db/x?sslpassword=***",
	} {
		if got := Mask(s); got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for s, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "2562047h": 2562047 * time.Hour} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%s: %v %v", s, got, err)
		}
	}
	for s, want := range map[string]string{"10": "10 has no unit; want 10m, 1h", "soon": "no time", "xd": "no time", "1dx": "no time", "1d-5h": "no time", "36500d2000000h": "no time", "2562048h": "no time"} {
		if _, err := ParseDuration(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestOddFiles: a file that cannot be one is refused with its name, and none is read without end.
func TestOddFiles(t *testing.T) {
	const good = "profiles:\n  a:\n    queues:\n      orders: sqs://orders\n"
	for _, c := range []struct{ text, want string }{
		{good + "---\n" + good, ":5: a second document begins here"},
		{good + "---\n", ":5: a second document begins here"},
		{good + "  b: {queues: {mails: 'sqs://ma", "found unexpected end of stream"},
		{"profiles:\n  a:\n    queues: [", "did not find expected node content"},
		{"\x00\x01", "control characters are not allowed"},
		{"profiles: \xff\xfe", "yaml: "},
		{"#" + strings.Repeat("x", 1<<20), "it is larger than 1048576 bytes"},
		{"profiles: &a {x: *a}", "x: unknown field"},
		{"profiles:\n  a: &a {queues: &q {orders: {url: 'sqs://orders', scopes: [*a, *q]}}}", "want a single value"},
	} {
		path := write(t, c.text, 0o600)
		if _, err := Load(env(EnvConfig, path), ""); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := Load(env(EnvConfig, t.TempDir()), ""); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Error(err)
	}
	if filepath.Separator != '/' {
		return
	}
	path := write(t, good, 0o666)
	if _, err := Load(env(EnvConfig, path), ""); err == nil || !strings.Contains(err.Error(), "others may write the file (mode 0666)") || !strings.Contains(err.Error(), "chmod go-w "+path) {
		t.Error(err)
	}
	if _, err := Load(env(EnvConfig, "/dev/zero"), ""); err == nil || !strings.Contains(err.Error(), "it is larger than") {
		t.Error(err)
	}
	if os.Getuid() != 0 { // who may read everything
		if _, err := Load(env(EnvConfig, write(t, good, 0)), ""); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Error(err)
		}
	}
}

// TestCutFiles: a file of which only the beginning is there gives an error with its name, or the
// beginning; it never panics.
func TestCutFiles(t *testing.T) {
	for n := range len(whole) {
		f, _, err := parse("onceq.yaml", []byte(whole[:n]), env("STORE", "postgres://db/x", "KEY", strings.Repeat("k", 32)))
		if err != nil && !strings.HasPrefix(err.Error(), "onceq.yaml:") || err == nil && f == nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
