package dynamooutbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRelaysWithOtherClocks: relays whose clocks are a minute ahead and a minute behind take turns.
// What is due at once is sent at once by either, each group in its order, and each message once. A
// delay is as long as the clock of the relay that sends it says.
func TestRelaysWithOtherClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		to := &destination{}
		sent := make(map[string]time.Duration) // after it was put
		put := make(map[string]time.Time)
		producer := newOutbox(t, w.f.client(), testTable, testQueue, nil, &Options{Partitions: 2})
		skewed := func(by time.Duration) *Outbox {
			b := w.outbox(&Options{Partitions: 2})
			b.wall = func() time.Time { return time.Now().Add(by) }
			return b
		}
		n, wanted := 0, 0
		watch := func(d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); pass(100 * time.Millisecond) {
				keys := to.keys()
				for _, k := range keys[n:] {
					if _, twice := sent[k]; twice {
						t.Errorf("%s was sent twice", k)
					}
					sent[k] = time.Since(put[k])
				}
				n = len(keys)
			}
		}
		for turn := range 4 {
			by := time.Minute
			if turn%2 == 1 {
				by = -time.Minute
			}
			first := relay(t, skewed(by), to)
			pass(time.Second)
			second := relay(t, skewed(-by), to) // it stands by
			for i := range 5 {
				key := fmt.Sprintf("turn %d, %d", turn, i)
				alone, grouped := keyed("alone "+key), keyed("g "+key)
				grouped.Group, grouped.Attributes = "g", map[string]string{SequenceAttribute: fmt.Sprint(10*turn + i)}
				put[alone.Meta.Key], put[grouped.Meta.Key] = time.Now(), time.Now()
				w.put(producer, alone, grouped)
				wanted += 2
			}
			watch(10 * time.Second)
			if len(sent) != wanted {
				t.Fatalf("turn %d: %d of %d were sent", turn, len(sent), wanted)
			}
			later := keyed(fmt.Sprint("later ", turn))
			later.Delay = 5 * time.Minute
			put[later.Meta.Key] = time.Now()
			w.put(producer, later)
			wanted++
			watch(7 * time.Minute)
			if d := sent[later.Meta.Key]; d < 5*time.Minute-by-time.Second || d > 5*time.Minute-by+3*time.Second {
				t.Errorf("a relay whose clock is %v ahead has sent a message after %v, which was to wait for 5 min", by, d)
			}
			first()
			watch(2 * time.Second)
			second()
		}
		for key, d := range sent {
			if !strings.HasPrefix(key, "later") && d > 5*time.Second {
				t.Errorf("%s was sent after %v", key, d)
			}
		}
		var group []string
		for _, key := range to.keys() {
			if strings.HasPrefix(key, "g ") {
				group = append(group, key)
			}
		}
		if !slices.IsSorted(group) || len(group) != 20 {
			t.Errorf("the group was sent as %q", group)
		}
	})
}
