package dlq_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
)

// short takes room bytes, and then one line not at all.
type short struct {
	bytes.Buffer
	room int
}

func (s *short) Write(b []byte) (int, error) {
	if len(b) > s.room {
		n, _ := s.Buffer.Write(b[:s.room])
		s.room = 1 << 20
		return n, errFault
	}
	s.room -= len(b)
	return s.Buffer.Write(b)
}

// A torn line must not spoil the next one, because the letter of that one is removed.
func TestExportAfterATornLine(t *testing.T) {
	one := dlq.Entry{Message: &broker.Message{ID: "1", Body: []byte("b")}}
	const line = `{"message":"1","body":"b"}`
	for room, want := range map[int]string{
		0:             "",
		10:            line[:10] + "\n",
		len(line):     line + "\n",
		len(line) + 5: line + "\n" + line[:4] + "\n",
	} {
		w := &short{room: room}
		export := dlq.ExportJSON(w)
		for export(one) == nil {
		}
		for range 2 {
			if err := export(one); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.String(); got != want+line+"\n"+line+"\n" {
			t.Errorf("after %d bytes:\n%s", room, got)
		}
	}

	name := filepath.Join(t.TempDir(), "letters")
	for _, c := range []struct {
		before, want string
		flags        int
	}{
		{"", "", os.O_RDWR},
		{"x\n", "x\n", os.O_RDWR},
		{"x", "x\n", os.O_RDWR},
		{"x", "x\n", os.O_WRONLY},
		{"x\n", "x\n\n", os.O_WRONLY},
	} {
		if err := os.WriteFile(name, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, c.flags|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		export := dlq.ExportJSON(f)
		if err := errors.Join(export(one), export(one), f.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if want := c.want + strings.Repeat(line+"\n", 2); err != nil || string(got) != want {
			t.Errorf("after %q: %q, %v", c.before, got, err)
		}
	}
}
