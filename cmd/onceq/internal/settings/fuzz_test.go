package settings

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzParse: whatever a configuration file holds, it is read without a panic, and the same text is
// read twice alike. What is read is whole: each queue has a URL that is one, and stands in Order
// once; each profile has its name; a default is there; letter keys are long enough.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "# nothing", whole, "default: prod", "profiles: {}", "profiles: []", "profiles:\n  a:", "a: 1", "- a", "x", "--- a\n--- b",
		"profiles: {a: {queues: {o: sqs://o, o: sqs://p}}}", "profiles: {a: {queues: {o: {dead: sqs://d}}}}",
		"profiles: {a: &p {store: sqlite:///k.db}, b: *p}", "profiles: &p {a: *p}", "profiles: {a: {queues: &q {o: *q}}}",
		"profiles: {a: {letter_keys: &k [*k]}}", "profiles: {a: {letter_keys: env:KEY, protect: yes}}",
		"profiles: {a: {<<: {store: dynamodb://t}}}", "profiles: {? [a] : {}}", "profiles: {a: {queues: {o: {url: sqs://o, scopes: [[a]], retention: 1d-5h, max_attempts: 1e3}}}}",
		"profiles: {a: {store: !!binary cG9zdGdyZXM6Ly9h, links: {x: !!null }}}", "profiles: {a: {protect: *b}}", "\xff\xfe", "\x00",
	} {
		f.Add(s)
	}
	variables := env("STORE", "postgres://app:secret@db/x", "KEY", strings.Repeat("k", 32))
	f.Fuzz(func(t *testing.T, text string) {
		got, hidden, err := parse("onceq.yaml", []byte(text), variables)
		again, hiddenAgain, errAgain := parse("onceq.yaml", []byte(text), variables)
		if (err == nil) != (errAgain == nil) || hidden != hiddenAgain {
			t.Fatalf("%v, %v, then %v, %v", hidden, err, hiddenAgain, errAgain)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "onceq.yaml:") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v, then %+v", got, again)
		}
		if got.Default != "" && got.Profiles[got.Default] == nil {
			t.Fatalf("the default is %q, of %v", got.Default, names(got.Profiles))
		}
		for name, p := range got.Profiles {
			if p.Name != name || len(p.Order) != len(p.Queues) {
				t.Fatalf("profile %q: %+v", name, p)
			}
			if p.Store != "" {
				if _, err := ParseStore(p.Store); err != nil {
					t.Fatal(err)
				}
			}
			for _, k := range p.LetterKeys {
				if len(k) < 32 {
					t.Fatalf("a letter key of %d bytes", len(k))
				}
			}
			for _, name := range p.Order {
				q := p.Queues[name]
				if q == nil || q.Name != name || q.MaxAttempts < 0 || q.MaxAttempts > 1000 {
					t.Fatalf("queue %q: %+v", name, q)
				}
				if _, err := ParseQueue(q.URL); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// FuzzURLs: whatever stands for a queue or a store, it is read without a panic. What is read has a
// kind, and a queue a name, too. No error and no masked URL has the password in it, and what is
// masked once stays as it is.
func FuzzURLs(f *testing.F) {
	for _, s := range []string{
		"sqs://orders", "sqs://eu-central-1/123456789012/orders", "https://sqs.eu-central-1.amazonaws.com/123456789012/orders", "sqs+http://127.0.0.1:1/a/orders?region=x",
		"gcppubsub://p/s?topic=t&ordered=true", "postgres-queue://app:hunter22@db/x/orders?onceq.table=q", "postgres-queue://db/x/a%2Fb", "sqlite-queue:///./a.db/orders",
		"sqlite-queue:////o", "postgres://app:hunter22@db/x?sslmode=disable", "postgres://app:hunt/er22@db/x", "postgres://app:hunt?er22@db/x", "postgres://db/x?password=hunter22&%70assword=hunter22",
		"sqlite:///./k.db?onceq.table=t", "dynamodb://t?region=r&endpoint=http://h", "firestore://p/(default)/c?ttl=t", "postgres:hunter22", "://", "a://b:@", "", "x", "postgres://a@b:c@d/e@f", "sqs://%zz", "postgres://[::1",
	} {
		f.Add(s, "hunter22")
	}
	f.Fuzz(func(t *testing.T, s, password string) {
		if q, err := ParseQueue(s); err == nil && (q.Kind == "" || q.Name == "") {
			t.Fatalf("queue %q: %+v", s, q)
		}
		if st, err := ParseStore(s); err == nil && st.Kind == "" {
			t.Fatalf("store %q: %+v", s, st)
		}
		if once := Mask(s); Mask(once) != once {
			t.Fatalf("%q masked is %q, and then %q", s, once, Mask(once))
		}
		if d, err := ParseDuration(s); err == nil && strings.Contains(s, "d") && d < 0 {
			t.Fatalf("%q is %v", s, d)
		}
		if len(password) < 8 || strings.Trim(password, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return
		}
		for _, u := range []string{"postgres://app:" + password + "@db/x", "postgres-queue://app:" + password + "@db:1/x/q?onceq.x=1", "postgres://db/x?password=" + password} {
			_, err1 := ParseQueue(u)
			_, err2 := ParseStore(u)
			for _, said := range []string{Mask(u), text(err1), text(err2)} {
				if strings.Contains(said, password) && !strings.Contains(strings.ReplaceAll(u, password, "")+wantQueue+wantStore+"unknown parameter; did you mean", password) {
					t.Fatalf("%q has the password in it", said)
				}
			}
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
