package sqlitebroker

import "testing"

// TestNumbers: no message gets a number that one had before, also after the table was dropped.
func TestNumbers(t *testing.T) {
	f := openFile(t, tempFile(t))
	q := f.queue("orders", nil)
	id := send(t, q, bodies("", "a")...)[0]
	ack(t, q, one(t, q))
	next := send(t, q, bodies("", "b")...)[0]
	f.exec("DROP TABLE onceq_messages")
	if err := q.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := send(t, q, bodies("", "c")...)[0]
	if id >= next || next >= last {
		t.Errorf("numbers %s, %s, and %s after the table was made anew", id, next, last)
	}
	// The clock was an hour ahead when the table was made.
	f.exec("UPDATE sqlite_sequence SET seq = seq + 3600000000 WHERE name = 'onceq_messages'")
	ahead := send(t, q, bodies("", "d")...)[0]
	if err := q.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := send(t, q, bodies("", "e")...)[0]; id <= ahead {
		t.Errorf("number %s after %s, behind a Migrate by a clock that went back", id, ahead)
	}
}

// TestPlainSQL: others send, delete and move rows by SQL; groups stay in order.
func TestPlainSQL(t *testing.T) {
	f := openFile(t, tempFile(t))
	q, dead := f.queue("orders", nil), f.queue("dead", nil)
	for _, body := range []string{"1", "2", "3", "4"} {
		f.exec("INSERT INTO onceq_messages (queue, grp, body) VALUES ('orders', 'g', ?)", body)
	}
	f.exec("DELETE FROM onceq_messages WHERE body = '1'")
	m := one(t, q)
	if string(m.Body) != "2" || m.Published.IsZero() {
		t.Errorf("after its head was deleted the group brought %q of %v", m.Body, m.Published)
	}
	ack(t, q, m)
	f.exec("UPDATE onceq_messages SET queue = 'dead' WHERE body = '3'")
	if m := one(t, q); string(m.Body) != "4" {
		t.Errorf("after its head was moved the group brought %q", m.Body)
	}
	f.exec("UPDATE onceq_messages SET queue = 'dead', held = 0, due = published WHERE body = '4'")
	none(t, q, "nothing is left")
	for _, want := range []string{"3", "4"} {
		if m := one(t, dead); string(m.Body) != want {
			t.Errorf("the group in its new queue brought %q, want %q", m.Body, want)
		} else {
			ack(t, dead, m)
		}
	}
	if _, err := f.db.Exec("INSERT INTO onceq_messages (queue, due, body) VALUES ('orders', datetime('now'), 'x')"); err == nil {
		t.Error("a time that does not sort was taken")
	}
}

// TestPlainSQLOfFollowers: a follower that somebody deletes or moves leaves its group with one
// head.
func TestPlainSQLOfFollowers(t *testing.T) {
	f := openFile(t, tempFile(t))
	q, dead := f.queue("orders", nil), f.queue("dead", nil)
	send(t, q, bodies("g", "1", "2", "3", "4", "5")...)
	head := one(t, q)
	f.exec("DELETE FROM onceq_messages WHERE body = x'32'")
	none(t, q, "the head is in flight, and a follower was deleted")
	f.exec("UPDATE onceq_messages SET queue = 'dead' WHERE body = x'33'")
	none(t, q, "the head is in flight, and a follower was moved")
	if m := one(t, dead); string(m.Body) != "3" {
		t.Errorf("the group in its new queue brought %q", m.Body)
	}
	ack(t, q, head)
	for _, want := range []string{"4", "5"} {
		m := one(t, q)
		if string(m.Body) != want {
			t.Errorf("the group brought %q, want %q", m.Body, want)
		}
		none(t, q, "the next head is in flight")
		ack(t, q, m)
	}
}
