package dlq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dlq"
	"github.com/onceq/onceq/internal/faulty"
	"github.com/onceq/onceq/onceqtest"
)

func (r *rig) purge(o dlq.PurgeOptions) (dlq.Report, error) {
	return r.dlq.Purge(context.Background(), o)
}

// Each letter is exported before it is removed, copies too; what is not chosen stays.
func TestPurge(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.put(letterOf("a", 1), letterOf("a", 1), letterOf("b", 2), letterOf("c", 3, class("timeout")))
		var got []string
		export := func(e dlq.Entry) error {
			got = append(got, e.Ref().Key)
			return nil
		}
		rep, err := r.purge(dlq.PurgeOptions{Filter: dlq.Filter{Class: "permanent"}, Export: export, DryRun: true})
		if err != nil || rep.Purged != 3 || len(got) != 0 {
			t.Errorf("dry run: %v, %v, %v", rep, err, got)
		}
		r.depths(4, 0)
		rep, err = r.purge(dlq.PurgeOptions{Filter: dlq.Filter{Class: "permanent", Max: 2}, Export: export})
		if err != nil || rep.Purged != 2 || len(got) != 2 {
			t.Errorf("%v, %v, %v", rep, err, got)
		}
		r.depths(2, 0)
		rep, err = r.purge(dlq.PurgeOptions{Filter: dlq.Filter{Class: "permanent"}, Export: export})
		slices.Sort(got)
		if err != nil || rep.Purged != 1 || rep.Unchosen != 1 || strings.Join(got, "") != "aab" {
			t.Errorf("%v, %v, %v", rep, err, got)
		}
		r.depths(1, 0)
		if rep, err = r.purge(dlq.PurgeOptions{All: true, NoExport: true}); err != nil || rep.Purged != 1 {
			t.Errorf("%v, %v", rep, err)
		}
		r.depths(0, 0)
	})
}

// A letter whose export failed stays; what was exported before it is gone.
func TestPurgeStopsWhenExportFails(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.putN(5)
		full := errors.New("disk full")
		n := 0
		rep, err := r.purge(dlq.PurgeOptions{All: true, Export: func(e dlq.Entry) error {
			if n++; n == 3 {
				return full
			}
			return nil
		}})
		if !errors.Is(err, full) || rep.Purged != 2 || len(rep.Failed) != 1 || rep.Failed[0].Reason != "disk full" || !strings.Contains(err.Error(), rep.Failed[0].Ref.Key) {
			t.Errorf("%v, %v", rep, err)
		}
		r.depths(3, 0)
	})
}

// Wherever the broker fails, no letter is removed that was not exported, and each is removed in the
// end.
func TestPurgeFaults(t *testing.T) {
	for _, f := range []faulty.Faults{faulty.Fail(errFault), faulty.Lose(errFault), faulty.Fail(errFault).Only(1)} {
		for _, op := range []onceqtest.Op{onceqtest.Receive, onceqtest.Ack, onceqtest.Extend} {
			onEach(t, func(t *testing.T, r *rig) {
				r.putN(25)
				exported := make(map[string]int)
				o := dlq.PurgeOptions{All: true, Export: func(e dlq.Entry) error {
					exported[e.Ref().Key]++
					return nil
				}}
				r.dead.SetFault(func(_ context.Context, c onceqtest.Call) faulty.Faults {
					if c.Op == op && c.N%2 == 1 && (op != onceqtest.Receive || c.N < 9) {
						return f
					}
					return nil
				})
				if _, err := r.purge(o); err != nil {
					t.Error(err)
				}
				r.dead.SetFault(nil)
				pass(time.Minute)
				left := keys(r.drain(r.dead))
				if len(exported)+len(left) != 25 {
					t.Errorf("%v %+v: %d exported, %d left", op, f, len(exported), len(left))
				}
				if op != onceqtest.Extend && len(left) > 0 {
					t.Errorf("%v are left", left)
				}
				for _, key := range left {
					if exported[key] > 0 {
						t.Errorf("%s was exported and is left", key)
					}
				}
				for key, n := range exported {
					if n != 1 {
						t.Errorf("%s was exported %d times", key, n)
					}
				}
			})
		}
	}
}

// Letters that come while a purge goes on stay.
func TestPurgeFreezesItsSet(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(3)
		once := false
		rep, err := r.purge(dlq.PurgeOptions{All: true, NoExport: true, Each: func(dlq.Step) {
			if !once {
				once = true
				pass(time.Second)
				r.put(letterOf("new", 50))
			}
		}})
		if err != nil || rep.Purged != 3 || rep.Newer != 1 {
			t.Errorf("%v, %v", rep, err)
		}
		r.depths(1, 0)
	})
}

func TestPurgeOptions(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.putN(1)
		keep := func(dlq.Entry) error { return nil }
		for _, c := range []struct {
			o    dlq.PurgeOptions
			want string
		}{
			{dlq.PurgeOptions{}, "PurgeOptions.Filter: is empty"},
			{dlq.PurgeOptions{Filter: dlq.Filter{Max: 3}, Export: keep}, "PurgeOptions.Filter: is empty"},
			{dlq.PurgeOptions{All: true}, "PurgeOptions.Export: is nil"},
			{dlq.PurgeOptions{All: true, NoExport: true, Export: keep}, "PurgeOptions.NoExport"},
			{dlq.PurgeOptions{All: true, Filter: dlq.Filter{Class: "x"}, Export: keep}, "PurgeOptions.All"},
			{dlq.PurgeOptions{All: true, Filter: dlq.Filter{Max: -1}, Export: keep}, "PurgeOptions.Max"},
		} {
			if _, err := r.purge(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		}
		r.depths(1, 0)
	})
}

func TestExportJSON(t *testing.T) {
	at := time.UnixMilli(1764000000123)
	m := &broker.Message{
		ID: "m-1", Body: []byte("text"), Attributes: map[string]string{"tenant": "acme"}, Group: "g", Published: at,
		Meta: &broker.Meta{ID: "j-1", Key: "order-7", Version: 2, Extra: `"new":[1]`, Dead: &broker.Letter{Fence: 41, Class: "permanent", At: at}},
	}
	binary := &broker.Message{ID: "m-2", Body: []byte{0xff, 0}, MetaErr: errors.New("bad")}
	empty := &broker.Message{ID: "m-3", Body: nil}
	const want = `{"message":"m-1","published":"2025-11-24T16:00:00.123Z","group":"g","body":"text","attributes":{"tenant":"acme"},"onceq":{"v":2,"id":"j-1","k":"order-7","dead":{"f":41,"c":"permanent","at":1764000000123},"new":[1]}}
{"message":"m-2","body_base64":"/wA=","error":"bad"}
{"message":"m-3","body":""}
`
	path := filepath.Join(t.TempDir(), "letters.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	for _, export := range []func(dlq.Entry) error{dlq.ExportJSON(&b), dlq.ExportJSON(f)} {
		for _, m := range []*broker.Message{m, binary, empty} {
			if err := export(dlq.Entry{Message: m}); err != nil {
				t.Fatal(err)
			}
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{b.String(), string(stored)} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	var line struct {
		Onceq json.RawMessage `json:"onceq"`
	}
	if err := json.Unmarshal([]byte(strings.SplitN(b.String(), "\n", 2)[0]), &line); err != nil {
		t.Fatal(err)
	}
	if back, err := broker.DecodeMeta(string(line.Onceq)); err != nil || back.Dead.Fence != 41 || back.Extra != `"new":[1]` {
		t.Errorf("%+v, %v", back, err)
	}
	f.Close()
	if err := dlq.ExportJSON(f)(dlq.Entry{Message: m}); err == nil {
		t.Error("a write that failed was not told")
	}
}
