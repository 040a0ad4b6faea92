package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/onceq/onceq/ops"
)

// FuzzReconcileInput: a list or a ledger comes from anybody's SELECT. It is read the same way
// however it arrives; each row has a valid key, and an error names the flag. A body in CSV is what
// was written, with its line ends.
func FuzzReconcileInput(f *testing.F) {
	for _, s := range []string{
		"", "key\n", "\ufeffkey,due\nA-1,2026-11-22T03:00:00Z\n", "key,body\nA-1,\"a\r\nb\"\"\r\"\r\n", " \n{\"key\":\"A-1\",\"body\":{\"a\":1}}\n{}",
		"key,key\n", "id,key,fence\n1,A-1,7\n", "{\"key\":\"A-1\",\"fence\":18446744073709551615,\"at\":\"2026-11-22 03:00:00+00\"}", "key\n\"A", "{\"key\":null}",
	} {
		f.Add([]byte(s), s)
	}
	f.Fuzz(func(t *testing.T, data []byte, body string) {
		input := func(r io.Reader, columns []string) *table {
			return &table{
				flag: "--in", columns: columns, in: io.NopCloser(r), sum: sha256.New(), utc: true,
				scope: func(scope, typ string) (string, string, error) { return scope + "s", typ, nil },
			}
		}
		read := func(data []byte, as func(io.Reader) io.Reader) (xs []ops.Expected, es []ops.Effect, errs [2]string) {
			for x, err := range input(as(bytes.NewReader(data)), expectColumns).readExpected() {
				if err != nil {
					errs[0] = err.Error()
				} else if xs = append(xs, x); x.Key.Validate() != nil {
					t.Errorf("the key %q is yielded", x.Key)
				}
			}
			for e, err := range input(as(bytes.NewReader(data)), effectColumns).readEffects() {
				if err != nil {
					errs[1] = err.Error()
				} else if es = append(es, e); e.Key.Validate() != nil {
					t.Errorf("the key %q is yielded", e.Key)
				}
			}
			for _, err := range errs {
				if err != "" && !strings.HasPrefix(err, "--in") {
					t.Errorf("an error that names no input: %s", err)
				}
			}
			return xs, es, errs
		}
		whole := func(r io.Reader) io.Reader { return r }
		xs, es, errs := read(data, whole)
		// Of several wrong members of a line any may be told.
		if a, b, again := read(data, iotest.OneByteReader); !reflect.DeepEqual(a, xs) || !reflect.DeepEqual(b, es) || again[0] == "" != (errs[0] == "") || again[1] == "" != (errs[1] == "") {
			t.Errorf("byte by byte it is %v, %v, %q, and at once %v, %v, %q", a, b, again, xs, es, errs)
		}
		if body == "" {
			return
		}
		var file bytes.Buffer
		w := csv.NewWriter(&file)
		_ = w.WriteAll([][]string{{"key", "body"}, {"A-1", body}, {"A-2", "x"}})
		xs, _, errs = read(file.Bytes(), whole)
		if len(xs) != 2 || string(xs[0].Send.Body) != body || string(xs[1].Send.Body) != "x" {
			t.Errorf("the body %q is read as %v, %q", body, xs, errs[0])
		}
	})
}
