package sqlitebroker

import "testing"

// TestOddRows: a row that somebody wrote by hand keeps nobody waiting, and is a message itself.
func TestOddRows(t *testing.T) {
	for _, c := range []struct{ name, due, attempts string }{
		{"a day that is none", "'2020-02-30T00:00:00Z'", "0"},
		{"an hour that is none", "'2020-02-02T24:00:00Z'", "0"},
		{"attempts beyond 32 bits", "'2020-02-02T00:00:00Z'", "3000000000"},
		{"the most attempts", "'2020-02-02T00:00:00Z'", "2147483647"},
		{"attempts below 0", "'2020-02-02T00:00:00Z'", "-5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openFile(t, tempFile(t))
			q := f.queue("orders", nil)
			f.exec("INSERT INTO onceq_messages (queue, due, attempts, body) VALUES ('orders', " + c.due + ", " + c.attempts + ", 'odd')")
			send(t, q, bodies("", "behind")...)
			for m, err := range q.Peek(t.Context(), 10) {
				if err != nil {
					t.Fatalf("Peek: %v, %v", m, err)
				}
			}
			ms := take(t, q, 2)
			for i, want := range []string{"odd", "behind"} {
				if string(ms[i].Body) != want || ms[i].Attempt != 1 {
					t.Errorf("%q came, delivery %d; want %q", ms[i].Body, ms[i].Attempt, want)
				}
			}
			ack(t, q, ms...)
			if n := scan[int](f, "SELECT count(*) FROM onceq_messages"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}
