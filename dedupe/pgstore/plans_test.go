package pgstore

import (
	"strings"
	"testing"

	"github.com/onceq/onceq/dedupe"
)

// TestLookups: in the plan that stays, each key is looked up once in the primary key's index, and a
// locked row is found at its place. So it is on an empty table that nobody has analysed, where the
// planner would read the table whole, and whatever the role has set.
func TestLookups(t *testing.T) {
	pool := openPool(t)
	s := newStore(t, pool, newTable())
	lease := claimOne(t, s, request("claimed"))
	claims := []claim{{req: new(request("a")), absent: true}, {req: new(request("b")), absent: true}}
	at, key := []int{0}, func(int) *dedupe.Key { return &lease.Key }
	none := func(int, dedupe.Record, error) {}
	for name, c := range map[string]struct {
		add            func(p *pipeline)
		index, at, all int // scans: of the index, at a row's place, and in all of the table
	}{
		"claim": {func(p *pipeline) { s.insert(p, []*claim{&claims[0], &claims[1]}) }, 1, 0, 1},
		"settle": {func(p *pipeline) {
			s.decide(p, s.sql().settle, settleArgs(at, key, []dedupe.Settlement{{Key: lease.Key, Token: lease.Token, To: dedupe.Done}}), at, key, make([]bool, 1), none)
		}, 2, 1, 3},
	} {
		p := newPipeline()
		c.add(p)
		last := p.b.QueuedQueries[len(p.b.QueuedQueries)-1]
		for _, role := range []string{"", "SET LOCAL enable_indexscan = on", "SET LOCAL enable_tidscan = off"} {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			for _, sql := range []string{role, steady} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := tx.Query(t.Context(), "EXPLAIN "+last.SQL, last.Arguments...)
			if err != nil {
				t.Fatal(err)
			}
			var plan []string
			for rows.Next() {
				var line string
				if err := rows.Scan(&line); err != nil {
					t.Fatal(err)
				}
				plan = append(plan, line)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(plan, "\n")
			index := strings.Count(text, "Index Scan using") + strings.Count(text, "Index Only Scan using")
			place, whole := strings.Count(text, "Tid Scan on"), strings.Count(text, "Seq Scan on")+strings.Count(text, "Bitmap Heap Scan on")
			if index != c.index || place != c.at || index+place+whole != c.all {
				t.Errorf("%s with %q: %d scans of the index and %d at a row's place, want %d and %d, and no other of the table:\n%s", name, role, index, place, c.index, c.at, text)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
