package dlq_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// Tickets, alerts and plans name fingerprints. A line of the table may be added, none may change.
func TestFingerprintsStay(t *testing.T) {
	f, err := os.Open("testdata/fingerprints.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	var b strings.Builder
	for in := bufio.NewScanner(f); in.Scan(); {
		if in.Text() == "" || strings.HasPrefix(in.Text(), "//") {
			b.WriteString(in.Text() + "\n")
			continue
		}
		n++
		cells := strings.Split(in.Text(), "\t")
		if len(cells) != 4 {
			t.Fatalf("line %q has %d cells, want group, class, text, normalized", in.Text(), len(cells))
		}
		text := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\xff`, "\xff").Replace(cells[2])
		group, normal := dlq.Fingerprint(cells[1], text), dlq.Normalize(text)
		if !*rewrite && (group != cells[0] || normal != cells[3]) {
			t.Errorf("%s %q\nis   %s %q\nwant %s %q", cells[1], text, group, normal, cells[0], cells[3])
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", group, cells[1], cells[2], normal)
	}
	if n < 60 {
		t.Errorf("%d lines were read", n)
	}
	if *rewrite {
		if err := os.WriteFile("testdata/fingerprints.txt", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// madeUp are kinds of errors, each of which differs from job to job.
var madeUp = map[string]func(r *rand.Rand) (class, text string){
	"bank": func(r *rand.Rand) (string, string) {
		return "timeout", fmt.Sprintf(`Post "https://bank-%d.example/v2/charges/%s?at=%d": context deadline exceeded`, r.IntN(9), strings.Trim(id(r), "\""), r.Uint64())
	},
	"dial": func(r *rand.Rand) (string, string) {
		return "error", fmt.Sprintf("dial tcp %s: connect: connection refused", address(r))
	},
	"card": func(r *rand.Rand) (string, string) {
		return "permanent", fmt.Sprintf("the bank refuses: 402 card expired at %v, order %s", at(r), id(r))
	},
	"unique": func(r *rand.Rand) (string, string) {
		return "permanent", fmt.Sprintf(`ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505): Key (id)=(%s) exists`, id(r))
	},
	"foreign key": func(r *rand.Rand) (string, string) {
		return "permanent", fmt.Sprintf(`ERROR: insert or update violates foreign key constraint "orders_customer" (SQLSTATE 23503): Key (id)=(%s) is missing`, id(r))
	},
	"panic": func(r *rand.Rand) (string, string) {
		return "panic", fmt.Sprintf("panic: runtime error: index out of range [%d] with length %d\ngoroutine %d [running]:\nmain.f(0x%x)", r.IntN(1e6)+600, r.IntN(600)+600, r.IntN(1e6), r.Uint64())
	},
	"slow": func(r *rand.Rand) (string, string) {
		return "timeout", fmt.Sprintf("no answer from %s after %v (request %s)", address(r), time.Duration(r.Int64N(int64(time.Hour))), id(r))
	},
}

func id(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return fmt.Sprint(1_000 + r.Uint32())
	case 1:
		return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), r.Int64N(1<<48))
	case 2:
		return fmt.Sprintf("%016x", r.Uint64())
	case 3:
		return fmt.Sprintf("0x%x", r.Uint64())
	case 4:
		return fmt.Sprintf("01J9ZX%04dQ%04dK%03dW%03dP", r.IntN(1e4), r.IntN(1e4), r.IntN(1e3), r.IntN(1e3))
	}
	return fmt.Sprintf("%q", fmt.Sprint("order ", r.Uint32()))
}

func address(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return fmt.Sprintf("[2001:db8:%x::%x]:%d", 0x1000+r.IntN(1<<12), 1+r.IntN(1<<15), 1024+r.IntN(60000))
	}
	return fmt.Sprintf("10.%d.%d.%d:%d", r.IntN(256), r.IntN(256), r.IntN(256), 1+r.IntN(65535))
}

func at(r *rand.Rand) string {
	return time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Errors that differ in ids, times and addresses are one group a kind, and no two kinds are one.
func TestFingerprintsGroup(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := make(map[string]string) // by group
	for kind, f := range madeUp {
		groups := make(map[string]string)
		for range 2000 {
			c, text := f(r)
			groups[dlq.Fingerprint(c, text)] = text
		}
		if len(groups) != 1 {
			t.Errorf("%s: %d groups", kind, len(groups))
			n := 0
			for g, text := range groups {
				if t.Logf("%s %s\n\t%s", g, text, dlq.Normalize(text)); n > 5 {
					break
				}
				n++
			}
		}
		for g := range groups {
			if was, taken := kinds[g]; taken {
				t.Errorf("%s and %s are one group, %s", kind, was, g)
			}
			kinds[g] = kind
		}
	}
}

// Equal texts of two classes are two groups, and what a letter has lost on its way makes no other
// group of it.
func TestFingerprintOfALetter(t *testing.T) {
	if a, b := dlq.Fingerprint("timeout", "x"), dlq.Fingerprint("permanent", "x"); a == b {
		t.Errorf("%s for both", a)
	}
	const text = "bad\xffbyte \x00 and\u2028more 17\nsecond line"
	m, err := broker.DecodeMeta(broker.EncodeMeta(&broker.Meta{Dead: &broker.Letter{Class: "c", LastErr: text}}))
	if err != nil {
		t.Fatal(err)
	}
	e := dlq.Entry{Message: &broker.Message{Meta: m}}
	if want := dlq.Fingerprint("c", text); e.Fingerprint() != want {
		t.Errorf("the letter's group is %s, want %s", e.Fingerprint(), want)
	}
	if got, want := (dlq.Entry{Message: &broker.Message{}}).Fingerprint(), dlq.Fingerprint(dlq.Unexplained, ""); got != want {
		t.Errorf("of a letter that does not say why: %s, want %s", got, want)
	}
}

// Whoever sends messages may choose what stands in errors. No text may cost more than its length.
func TestFingerprintOfHostileTexts(t *testing.T) {
	const size = 1 << 20
	for _, unit := range []string{
		"a", "7", "f", "\"", "'", "`", "\"'`", "\\\"", "\"\\", "a:", "a:a", "::", "1:", "0x", "1.", "1-", "1s", "x1", "'a", "a'", " '", "#",
		"\xff", "é", "\u2028", "sqlstate ", "SQLSTATE 2350", "123456789012.", "1::", "deadbeef-", "00000000-0000-0000-0000-00000000000", "a_1",
	} {
		text := strings.Repeat(unit, size/len(unit))
		began := time.Now()
		normal := dlq.Normalize(text)
		if took := time.Since(began); took > 5*time.Second { // what is not linear takes minutes
			t.Errorf("%q repeated takes %v", unit, took)
		}
		if len(normal) > 300 || !utf8.ValidString(normal) {
			t.Errorf("%q repeated gives %d bytes: %q", unit, len(normal), normal)
		}
		if normal == "" {
			t.Errorf("%q repeated gives nothing", unit)
		}
		if a, b := dlq.Fingerprint("c", text), dlq.Fingerprint("c", text); a != b || len(a) != 8 {
			t.Errorf("%q repeated: %s and %s", unit, a, b)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	for _, k := range madeUp {
		_, text := k(rand.New(rand.NewPCG(3, 4)))
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := dlq.Normalize(text)
		if len(n) > 300 || !utf8.ValidString(n) || strings.Contains(n, "\n") {
			t.Errorf("%q", n)
		}
	})
}

func BenchmarkFingerprint(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var texts []string
	for range 50 {
		for _, f := range madeUp {
			_, text := f(r)
			texts = append(texts, text)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dlq.Fingerprint("timeout", texts[i%len(texts)])
	}
}
