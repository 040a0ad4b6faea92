package sqlitestore

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/sqlitewriter"
)

// TestRowRoundTrip: every field comes back as it was, nanoseconds, zones, empty and absent bytes
// included.
func TestRowRoundTrip(t *testing.T) {
	s, _ := newStore(t, tempFile(t), nil)
	at := time.Date(2026, 1, 31, 23, 59, 59, 123456789, time.FixedZone("", 5400))
	full := dedupe.Record{
		Key: dedupe.Key{Scope: "s:ü", Key: "k'\"\x01"}, Status: dedupe.Parked, Fence: 1<<62 + 1, Token: newToken(), Attempt: 7, Started: true,
		Policy: dedupe.Park, Owner: "o\x00wner", MessageID: "m", LeaseUntil: at, Fingerprint: []byte{}, Result: []byte{0, 1}, State: []byte("s"), StateNo: 3,
		ErrClass: "c", FirstErr: "not UTF-8: \xff", LastErr: "l", Created: at, ClaimedAt: at.Add(1), Updated: at.Add(2), Finished: at.Add(3), Expires: at.Add(4),
	}
	spare := dedupe.Record{
		Key: dedupe.Key{Scope: "s", Key: "k"}, Status: dedupe.Claimed, Fence: 1, Created: at, ClaimedAt: at, Updated: at,
	}
	for _, want := range []dedupe.Record{full, spare} {
		var got dedupe.Record
		err := s.do(t.Context(), time.Minute, 1, func(x *txn) error {
			if err := x.write(&want); err != nil {
				return err
			}
			if err := x.write(&want); err != nil {
				return err
			}
			var err error
			got, err = x.read(want.Key)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, tm := range []*time.Time{&want.LeaseUntil, &want.Created, &want.ClaimedAt, &want.Updated, &want.Finished, &want.Expires} {
			*tm = tm.UTC()
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read  %#v\nwrote %#v", got, want)
		}
	}
}

// TestTimesSort: as text they compare as they do as times, in any zone.
func TestTimesSort(t *testing.T) {
	whole := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	last := ""
	for _, at := range []time.Time{
		whole.Add(-1), whole, whole.Add(1), whole.Add(100 * time.Millisecond), whole.Add(101 * time.Millisecond),
		whole.Add(time.Minute).In(time.FixedZone("", -7200)), whole.Add(time.Hour).In(time.FixedZone("", 7200)),
	} {
		text := sqlitewriter.TimeText(at).(string)
		if text <= last {
			t.Errorf("%s is written after %s", text, last)
		}
		last = text
	}
}

// TestReadable: what a person with the sqlite3 shell sees.
func TestReadable(t *testing.T) {
	s, db := newStore(t, tempFile(t), nil)
	q := request("1")
	q.Policy = dedupe.Park
	settle(t, s, claim(t, s, q), dedupe.Failed)
	var status, policy, updated, token string
	err := db.QueryRowContext(t.Context(), "SELECT status, policy, updated, hex(token) FROM onceq_dedupe WHERE key = '1'").
		Scan(&status, &policy, &updated, &token)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, updated)
	if err != nil || status != "failed" || policy != "park" || !strings.EqualFold(token, q.Token.Hex()) {
		t.Errorf("the row shows %s, %s, %s, %s", status, policy, updated, token)
	}
	if d := time.Since(at); d < 0 || d > time.Minute || len(updated) != len("2006-01-02T15:04:05.000000000Z") {
		t.Errorf("the time shows as %s", updated)
	}
}

// TestOddRows: a row that somebody else has written into is an error that names it, for its own
// entry only.
func TestOddRows(t *testing.T) {
	for set, says := range map[string]string{
		"status = 'odd'":              `unknown status "odd"`,
		"status = 'none'":             `unknown status "none"`,
		"token = x'0102'":             "token has 2 bytes",
		"policy = ''":                 `unknown policy ""`,
		"fence = -1":                  "fence is -1",
		"updated = 'yesterday'":       `time "yesterday"`,
		"lease_until = '2026-01-31'":  `time "2026-01-31"`,
		"state = x'0102'":             "state has 2 bytes",
		"state = x'0000000000000000'": "the number of the state is 0",
	} {
		t.Run(set, func(t *testing.T) {
			s, db := newStore(t, tempFile(t), nil)
			odd, good := claim(t, s, request("odd")), claim(t, s, request("good"))
			if _, err := db.ExecContext(t.Context(), "UPDATE onceq_dedupe SET "+set+" WHERE key = 'odd'"); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			named := func(call string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `key "odd"`) || !strings.Contains(err.Error(), "onceq_dedupe") {
					t.Errorf("%s: %v, want %s and the row's name", call, err, says)
				}
			}
			cs, err := s.Claim(ctx, []dedupe.ClaimRequest{request("odd"), request("new")})
			if err != nil || cs[1].Outcome != dedupe.Won {
				t.Fatalf("claims: %+v, %v", cs, err)
			}
			named("Claim", cs[0].Err)
			rs, err := s.Renew(ctx, []dedupe.Renewal{{Key: odd.Key, Token: odd.Token, TTL: time.Minute}, {Key: good.Key, Token: good.Token, TTL: time.Minute}})
			if err != nil || rs[1].Err != nil {
				t.Fatalf("renewals: %+v, %v", rs, err)
			}
			named("Renew", rs[0].Err)
			es, err := s.Settle(ctx, []dedupe.Settlement{{Key: odd.Key, Token: odd.Token, To: dedupe.Done}, {Key: good.Key, Token: good.Token, To: dedupe.Done}})
			if err != nil || es[1].Status != dedupe.Done {
				t.Fatalf("settlements: %+v, %v", es, err)
			}
			named("Settle", es[0].Err)
			fs, err := s.Forget(ctx, []dedupe.Forgotten{{Key: odd.Key, Fence: odd.Fence, Force: true}})
			if err != nil {
				t.Fatal(err)
			}
			named("Forget", fs[0])
			_, err = s.Get(ctx, []dedupe.Key{odd.Key})
			named("Get", err)
			for _, e := range s.List(ctx, dedupe.Query{Prefix: "odd"}) {
				err = e
			}
			named("List", err)
		})
	}
}

// TestDriversDiffer: bytes may come as text; what is neither is refused, and named.
func TestDriversDiffer(t *testing.T) {
	var r dedupe.Record
	state := &stateColumn{&r}
	if err := state.Scan("\x00\x00\x00\x00\x00\x00\x00\x02step"); err != nil || r.StateNo != 2 || string(r.State) != "step" {
		t.Errorf("a state that came as text: %d %q, %v", r.StateNo, r.State, err)
	}
	var bad *contentError
	if err := state.Scan(int64(7)); !errors.As(err, &bad) || !strings.Contains(err.Error(), "int64 where bytes are wanted") {
		t.Errorf("a number in place of a state: %v", err)
	}
	for v, want := range map[any]string{"a": "a", nil: "", int64(7): ""} {
		if got := text(v); got != want {
			t.Errorf("text(%v) = %q, want %q", v, got, want)
		}
	}
	if got := text([]byte("b")); got != "b" {
		t.Errorf("bytes as text: %q", got)
	}
}
