package controlstore

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/control"
)

// busyCard is what a worker under load says of itself.
func busyCard(jobs int) *control.WorkerStatus {
	at := time.Date(2026, 11, 22, 3, 32, 10, 0, time.UTC)
	c := &control.WorkerStatus{
		Host: "ip-10-0-131-77.eu-central-1.compute.internal", PID: 28411, Version: "v0.9.2-0.20261122033210-0123456789ab", Scope: "orders",
		Types: []string{"charge", "refund", "report", "mail"}, Started: at.Add(-49 * time.Hour), At: at, Slots: 100, Busy: jobs, Held: 20, State: "running",
		Rules: 31, Outcomes: map[string]uint64{"done": 1_234_567, "retried": 5120, "already-done": 77, "failed": 12},
		Durations: map[string]control.Quantiles{
			"charge": {P50: 120 * time.Millisecond, P95: 800 * time.Millisecond, Max: 12 * time.Second}, "refund": {P50: time.Second, P95: 2 * time.Second, Max: 3 * time.Second},
			"report": {P50: time.Minute, P95: 2 * time.Minute, Max: 3 * time.Minute}, "mail": {P50: time.Second, P95: time.Second, Max: time.Second},
		},
		Minute: &control.Runs{Runs: 601, Errors: 31}, MinuteTypes: map[string]control.Runs{"charge": {Runs: 500, Errors: 30}, "refund": {Runs: 60, Errors: 1}, "report": {Runs: 1, Errors: 0}, "mail": {Runs: 40, Errors: 0}}, FullSince: at.Add(-45 * time.Second),
		Retention: 31 * 24 * time.Hour, Interrupted: "rerun", MaxAttempts: 10, Timeout: 15 * time.Minute, Timeouts: map[string]time.Duration{"report": time.Hour}, DrainTimeout: 20 * time.Second,
		MinuteErrors: map[string]uint64{"timeout": 20, "declined": 10, "panic": 1},
		HeadWait:     38200 * time.Millisecond, Rate: 601.3, Requests: map[string]uint64{"receive": 123456, "delete": 99999},
	}
	for i := range jobs {
		c.Jobs = append(c.Jobs, control.RunningJob{
			Key: fmt.Sprintf("0198c1d2-7d4f-7a3b-9c0d-%012d", i), ID: fmt.Sprintf("0198c1d2-7d4f-7a3b-9c0d-%012d", i),
			Type: "charge", At: at.Add(-time.Duration(i) * time.Second), Attempt: 1, Fence: 1_795_318_330_000_000 + uint64(i),
		})
	}
	return c
}

// TestCardSize: a card of eight jobs leaves room for the rest of its item in one write unit,
// however long its names are, and is as whole as possible.
func TestCardSize(t *testing.T) {
	long := busyCard(8)
	for i := range long.Jobs {
		j := &long.Jobs[i]
		j.Key, j.Type, j.Attempt, j.Overdue = strings.Repeat("ключ", 200), strings.Repeat("t", 255), 12, true
	}
	long.Types, long.Scopes = nil, map[string]string{}
	for i := range 300 {
		long.Types = append(long.Types, fmt.Sprint(strings.Repeat("y", 200), i))
		long.Durations[long.Types[i]] = control.Quantiles{Max: time.Hour}
		long.Outcomes[fmt.Sprint("outcome", i)] = 1
		long.MinuteTypes[long.Types[i]] = control.Runs{Runs: uint64(i), Errors: 1}
		long.Timeouts[long.Types[i]], long.MinuteErrors[fmt.Sprint("class", i)] = time.Hour, uint64(i)
		long.Scopes[long.Types[i]] = strings.Repeat("s", 190)
		long.PausedBy = append(long.PausedBy, fmt.Sprint("rule", i))
	}
	long.NoRules = strings.Repeat("AccessDenied ", 100)
	for name, c := range map[string]*control.WorkerStatus{"empty": {}, "idle": busyCard(0), "busy": busyCard(8), "long": long} {
		b, err := encodeCard(c, "0123456789", "w", 700)
		if err != nil || len(b) > 700 || !utf8.Valid(b) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		got, id, err := decodeCard(b)
		if err != nil || id != "0123456789" || got.Busy != c.Busy || len(got.Jobs)+got.More != len(c.Jobs) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	const owner = "ip-10-0-131-77.eu-central-1.compute.internal/28411"
	b, _ := encodeCard(busyCard(8), "0123456789", owner, cardRoom(owner, "orders/123"))
	got, _, _ := decodeCard(b)
	if len(got.Jobs) < 8 {
		t.Errorf("of 8 jobs with UUIDs %d are shown, in %d bytes: %s", len(got.Jobs), len(b), b)
	}
	if named(got, owner, "orders"); got.Host != busyCard(0).Host || got.PID != 28411 {
		t.Errorf("the process is %q, %d", got.Host, got.PID)
	}
	if j := got.Running("0198c1d2-7d4f-7a3b-9c0d-000000000003"); j == nil || j.Type != "charge" || j.Attempt != 1 || j.Fence != 1_795_318_330_000_003 || !j.At.Equal(got.At.Add(-3*time.Second)) {
		t.Errorf("the job is %+v", j)
	}
	many, _ := encodeCard(busyCard(100), "0123456789", owner, 700)
	if got, _, err := decodeCard(many); err != nil || len(got.Jobs) < 90 {
		t.Errorf("of 100 jobs %d are shown, %v", len(got.Jobs), err)
	}
}

// TestCardWhole: what fits comes back as it was.
func TestCardWhole(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 32, 10, 0, time.UTC)
	c := &control.WorkerStatus{
		Host: "h", PID: 1, Version: "v", Scope: "orders", Types: []string{"charge"}, Scopes: map[string]string{"charge": "money"}, Started: at.Add(-time.Hour), At: at, Slots: 10, Busy: 2, Held: 3, State: "paused",
		PausedBy: []string{"abcde"}, Rules: 4, NoRules: "denied", Outage: "store", OutageSince: at.Add(-time.Minute), Outcomes: map[string]uint64{"done": 1},
		Durations: map[string]control.Quantiles{"charge": {P50: time.Second, P95: 2 * time.Second, Max: 3 * time.Second}}, HeadWait: time.Second, Rate: 1.5,
		Minute: &control.Runs{Runs: 3, Errors: 1}, MinuteTypes: map[string]control.Runs{"charge": {Runs: 3, Errors: 1}}, FullSince: at.Add(-time.Second), Retention: time.Hour, Interrupted: "park",
		MinuteErrors: map[string]uint64{"timeout": 1}, MaxAttempts: -1, Timeout: time.Minute, Timeouts: map[string]time.Duration{"charge": time.Second}, DrainTimeout: math.MaxInt64,
		Requests: map[string]uint64{"receive": 1}, More: 1, Probe: true, Paused: []string{"local", "breaker"}, LimitedBy: "rules", Limiters: map[string]uint64{"api": 7},
		Jobs: []control.RunningJob{{Key: "A-1", ID: "i-1", Type: "charge", At: at.Add(-time.Second), Attempt: 2, Fence: 7, Overdue: true}, {Key: "~A-2", ID: "~~", Type: "other", At: at, Attempt: 1}},
	}
	b, err := encodeCard(c, "0123456789", "w", 2000)
	if err != nil {
		t.Fatal(err)
	}
	got, id, err := decodeCard(b)
	if err != nil || id != "0123456789" || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v\nwant\n%+v\n%v", got, c, err)
	}
}

// TestLaterCard: what a later version adds is left out, and the rest is shown.
func TestLaterCard(t *testing.T) {
	got, _, err := decodeCard([]byte(`{"v":7,"i":"x","at":1795318330000,"n":4,"gpu":[1,2],"j":[["A","",9,1,1,"2",0,"shard-3"]]}`))
	if err != nil || got.Slots != 4 || len(got.Jobs) != 1 || got.Jobs[0].Key != "A" || got.Jobs[0].Type != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "x", `{"n":"many"}`, `{"j":[{"k":1}]}`} {
		if _, _, err := decodeCard([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzDecodeCard(f *testing.F) {
	b, _ := encodeCard(busyCard(3), "x", "w", 700)
	f.Add(b)
	f.Add([]byte(`{"at":-9223372036854775808,"up":9223372036854775807,"j":[[1,2,-5,1e300,-1e300,"-1"],[],["~~x","~A",3]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := decodeCard(b)
		if err != nil {
			return
		}
		again, err := encodeCard(c, "x", "w", 700)
		if err != nil || len(again) > 700+cardJob*len(c.Jobs) || !json.Valid(again) {
			t.Errorf("%d bytes, %v", len(again), err)
		}
	})
}

// TestFailingTypes: where a card has no room for the counts of all types, those with the most
// errors stay, and the sum of all is told in any case.
func TestFailingTypes(t *testing.T) {
	c := busyCard(8)
	for i := range 40 {
		c.MinuteTypes[fmt.Sprint("type-", i)] = control.Runs{Runs: 100, Errors: uint64(i)}
	}
	b, err := encodeCard(c, "0123456789", "w", 700)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeCard(b)
	if err != nil || got.Minute == nil || *got.Minute != *c.Minute || got.MinuteTypes["type-39"].Errors != 39 || len(got.MinuteTypes) > 3 {
		t.Errorf("%+v, %v", got, err)
	}
	old, _, err := decodeCard([]byte(`{"v":1,"i":"0123456789","at":1795318330000,"n":10,"b":10,"w":13}`))
	if err != nil || old.Minute != nil || !old.FullSince.IsZero() || old.Busy != 10 || old.HeadWait != 13*time.Millisecond {
		t.Errorf("an earlier version's card is %+v, %v", old, err)
	}
}

// TestCardClasses: where a card has no room for each class, those with the most errors stay, and
// the sum is still that of all errors.
func TestCardClasses(t *testing.T) {
	c := busyCard(8)
	sum := uint64(0)
	c.MinuteErrors = map[string]uint64{"other": 1}
	for i := range 15 {
		c.MinuteErrors[fmt.Sprint("class-", i)] = uint64(i + 1)
	}
	for _, n := range c.MinuteErrors {
		sum += n
	}
	b, err := encodeCard(c, "0123456789", "w", 870)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeCard(b)
	all := uint64(0)
	for _, n := range got.MinuteErrors {
		all += n
	}
	if err != nil || got.MinuteErrors["class-14"] != 15 || len(got.MinuteErrors) > 4 || all != sum {
		t.Errorf("%v of %d, want %d, %v", got.MinuteErrors, all, sum, err)
	}
}
