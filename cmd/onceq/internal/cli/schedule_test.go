package cli

import (
	"context"
	"testing"
	"time"

	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/controlstore"
	"github.com/onceq/onceq/schedule"
)

// TestScheduleLs: what the entries of the store's schedulers have sent, what became of it, and what
// comes next; also where a name or a schedule is odd.
func TestScheduleLs(t *testing.T) {
	r := newRig(t)
	r.run("schedule", "ls").want(0, "no scheduler has told this store of an entry")
	now := time.Now()
	hour := now.UTC().Truncate(time.Hour)
	for _, e := range []*controlstore.Scheduled{
		{Name: "hourly", Spec: "every 1h0m0s", Scope: "orders:charge", Born: now.Add(-24 * time.Hour), Seen: now},
		{Name: "it's \x1b[31m", Spec: "5 4 * * * Europe/Berlin", Born: now, Seen: now.Add(-3 * time.Hour)},
		{Name: "not sent", Spec: "every 1h0m0s", Born: now.Add(-24 * time.Hour), Seen: now},
		{Name: "own", Spec: "main.moon", Own: true, Born: now, Seen: now},
	} {
		if err := controlstore.ChangeSchedules(t.Context(), r.store, controlstore.SchedulePart(e.Name), []*controlstore.Scheduled{e}, func(_, _ *controlstore.Scheduled) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	key := schedule.Key("hourly", hour)
	if _, err := control.RunOnce(t.Context(), r.store, controlstore.InstantName(key), time.Hour, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	r.run("--utc", "schedule", "ls").want(0, "LAST UTC", "NEXT UTC")
	r.run("schedule", "ls").want(0, "every 1h0m0s", "waits", "5 4 * * * Europe/Berlin", "3h, NO SCHEDULER", "main.moon", "own: ops: the schedule is the program's own").not("\x1b")

	token := dedupe.Token{1}
	k := dedupe.Key{Scope: "orders:charge", Key: key}
	if _, err := r.store.Claim(t.Context(), []dedupe.ClaimRequest{{Key: k, Token: token, TTL: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Settle(t.Context(), []dedupe.Settlement{{Key: k, Token: token, To: dedupe.Failed, ErrClass: "permanent"}}); err != nil {
		t.Fatal(err)
	}
	r.run("schedule", "ls").want(0, "failed", "next: onceq key show orders:charge "+key)
	var views []scheduleView
	r.run("schedule", "ls", "-o", "json").want(0).json(&views)
	if len(views) != 4 || views[0].Entry != "hourly" || views[0].Key != key || views[0].Status != "failed" || views[0].Scope != "orders:charge" ||
		*views[0].Last != hour.Format("2006-01-02T15:04:05.000Z") || *views[0].Next != hour.Add(time.Hour).Format("2006-01-02T15:04:05.000Z") || views[0].Silent {
		t.Errorf("%+v", views)
	}
	if views[1].Next == nil || views[1].Last != nil || !views[1].Silent || views[2].Last != nil || views[2].Next == nil || views[3].Next != nil || views[3].Error == "" {
		t.Errorf("%+v", views[1:])
	}
	r.run("schedule", "ls", "orders").want(2)
	r.run("-q", "schedule", "ls").want(0, "hourly\n")
}
