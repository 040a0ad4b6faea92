package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/sqsfake"
)

func TestLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := letters(t.Context(), &out)
		for _, want := range []string{
			"bob-2 is tried again in a second: the bank does not answer",
			"carol-1 becomes a dead letter: the account is closed",
			"carol-2 becomes a dead letter: overdrawn by 8000 cents",
			"carol-4 becomes a dead letter: overdrawn by 1000 cents",
		} {
			require.Contains(t, out.String(), want)
		}
		require.Equal(t, len(accounts), b.most, "accounts run beside each other\n%s", &out)
		require.False(t, b.mixed, "two transfers of one account ran at once\n%s", &out)
		all := []int{1, 2, 3, 4, 5}
		for _, a := range []string{"alice", "bob", "dave"} {
			require.Equal(t, all, b.moved[a], "%s\n%s", a, &out)
			require.Equal(t, rest, b.balance[a], "%s\n%s", a, &out)
		}
		require.Less(t, b.at["alice"], 2*time.Second, "nobody waits for bob\n%s", &out)
		require.Less(t, b.at["dave"], 2*time.Second, "%s", &out)
		require.Greater(t, b.at["bob"], 3*time.Second, "%s", &out)
		require.Equal(t, rest, b.balance["carol"], "%s", &out)
		require.Len(t, b.moved["carol"], len(cents), "each once\n%s", &out)
		require.NotContains(t, out.String()[strings.Index(out.String(), "replayed"):], "dead letter", "in their order none overdraws")
	})
}

// HoldGroup: nothing of carol's is done out of order, and when the cause is mended, all is done,
// without a letter.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		c, b := held(t.Context(), &out)
		defer c.Close()
		require.Contains(t, out.String(), "carol-1 holds its account: the account is closed")
		require.Empty(t, b.moved["carol"])
		require.Equal(t, rest, b.balance["alice"])

		b.closed["carol-1"] = false
		<-time.After(time.Hour + time.Minute)
		began := time.Now()
		c.work(t.Context(), b, len(cents), true)
		require.Equal(t, []int{1, 2, 3, 4, 5}, b.moved["carol"], "%s", &out)
		require.Equal(t, rest, b.balance["carol"])
		require.Less(t, time.Since(began), 10*time.Second)
		d, err := c.dead.Depth(t.Context())
		require.NoError(t, err)
		require.Equal(t, broker.Depth{}, d)
	})
}

// Replies of SQS are lost, in the middle and again and again: in order, each once.
func TestRepliesLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newCity(), newBank(io.Discard)
		defer c.Close()
		require.NoError(t, onceq.Send(t.Context(), c.queue, transfers()))
		c.SetFaults(sqsfake.Fault{Rate: 0.3, Reset: true, Applied: true})
		c.work(t.Context(), b, len(accounts)*len(cents), false)
		c.SetFaults()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		c.work(ctx, b, len(accounts)*len(cents), false) // what was acked in vain is acked now
		for _, a := range accounts {
			require.Equal(t, []int{1, 2, 3, 4, 5}, b.moved[a], a)
			require.Equal(t, rest, b.balance[a], a)
		}
		require.False(t, b.mixed)
		d, err := c.queue.Depth(t.Context())
		require.NoError(t, err)
		require.Equal(t, broker.Depth{}, d)
	})
}
