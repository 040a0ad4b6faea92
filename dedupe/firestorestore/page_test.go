package firestorestore

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/must"
)

// TestPage: the page's gcloud and Terraform make one database: they switch off the index of every
// field that the store writes but "attention", and name the same TTL field, collection, place, role
// and account.
func TestPage(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/backend-firestore.md"))
	by := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		by[m[1]] += m[2]
	}
	hcl, sh := by["hcl"], strings.ReplaceAll(by["sh"], "\\\n", " ")
	if strings.Count(hcl, "{") != strings.Count(hcl, "}") || hcl == "" {
		t.Error("the Terraform has open braces")
	}
	one := func(text, pattern string) string {
		t.Helper()
		m := regexp.MustCompile("(?s)" + pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("nothing of the form %s", pattern)
		}
		return m[1]
	}
	for what, ps := range map[string][2]string{
		"TTL field":  {`field += "(\w+)"\s+ttl_config`, `ttls update (\S+) `},
		"collection": {`collection = "(\w+)"\s+field +=.*?ttl_config`, `--collection-group=(\S+) --enable-ttl`},
		"exempted":   {`collection = "(\w+)"\s+field += each`, `--collection-group=(\S+) --disable-indexes`},
		"location":   {`location_id += "([^"]+)"`, `--location=(\S+)`},
		"role":       {`role += "([^"]+)"`, `--role=(\S+)`},
		"account":    {`member += "([^"]+)"`, `--member=(\S+)`},
	} {
		if a, b := one(hcl, ps[0]), one(sh, ps[1]); a != b {
			t.Errorf("the %s is %s in Terraform, %s in gcloud", what, a, b)
		}
	}
	if f := one(sh, `ttls update (\S+) `); f != DefaultTTLField {
		t.Errorf("the TTL field is %s, and the store's %s", f, DefaultTTLField)
	}
	want := []string{fieldProbe, fieldCommit, DefaultTTLField}
	for _, c := range columns {
		want = append(want, c.name)
	}
	slices.Sort(want)
	want = slices.DeleteFunc(slices.Compact(want), func(f string) bool { return f == fieldAttention })
	inShell := strings.Fields(one(sh, `for field in (.*?); do`))
	inTerraform := regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(one(hcl, `toset\(\[(.*?)\]\)`), -1)
	names := []string{DefaultTTLField} // the resource of its TTL policy switches its indexes off
	for _, m := range inTerraform {
		names = append(names, m[1])
	}
	slices.Sort(names)
	slices.Sort(inShell)
	if !slices.Equal(inShell, want) || !slices.Equal(names, want) {
		t.Errorf("without an index are\n%v in gcloud\n%v in Terraform, want\n%v", inShell, names, want)
	}
}

// TestBytesOfARecord: a done job's document is as large as docs/production.md says of a million. No
// index is counted, because the one that stays has no entry of it.
func TestBytesOfARecord(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/production.md"))
	m := regexp.MustCompile(`(?m)^\| Firestore \|.*\| ([\d.]+) GB`).FindSubmatch(text)
	if m == nil {
		t.Fatal("docs/production.md has no such row")
	}
	told, _ := strconv.ParseFloat(string(m[1]), 64)
	bubble(t, func(t *testing.T, _ *firestorefake.Server, s *Store) {
		q := request("1")
		q.Key = dedupe.Key{Scope: "orders:charge", Key: "order-1000042"}
		q.Owner, q.MessageID, q.Sent = "worker-7f9c:4711", "0199f3a2-7c1e-7b3a-9d55-0242ac120002", time.Now().Add(-time.Second)
		l := claimOne(t, s, q)
		claimed := len(raw(t, s, q.Key).GetFields())
		settleOne(t, s, l, dedupe.Done)
		f := raw(t, s, q.Key).GetFields()
		n := (&stored{fields: f}).weight() + len("onceq") + 1 + len(documentID(q.Key)) + 1 + 16
		t.Logf("%d bytes; %d fields, and %d when it was claimed", n, len(f), claimed)
		if _, indexed := f[fieldAttention]; indexed || math.Abs(float64(n)/1000-told) > 0.05 {
			t.Errorf("%d bytes a job, and the page has %.2f GB for a million", n, told)
		}
	})
}
