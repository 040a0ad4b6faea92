package sqlitestore

import (
	"testing"

	"github.com/onceq/onceq/dedupe"
)

func TestClaimSettleGet(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	q := request("1")
	l := claim(t, s, q)
	if l.Attempt != 1 || l.Fence == 0 {
		t.Fatalf("lease %+v", l)
	}
	r := get(t, s, q.Key)
	if r.Status != dedupe.Claimed || r.Token != q.Token || r.Owner != q.Owner {
		t.Fatalf("record %+v", r)
	}
	settle(t, s, l, dedupe.Done)
	r = get(t, s, q.Key)
	if r.Status != dedupe.Done || string(r.Result) != `"ok"` {
		t.Fatalf("record %+v", r)
	}
}
