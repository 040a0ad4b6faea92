package shop

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/onceq/onceq/broker"
	"github.com/stretchr/testify/require"
)

// fits checks that no line is wider than the screen; long words, such as addresses, cannot be cut.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		require.LessOrEqual(t, utf8.RuneCountInString(line), columns, "%q", line)
	}
}

func TestReportFitsTheScreen(t *testing.T) {
	set := &Settings{Seed: 123456789, Visibility: 2 * time.Second}
	audit := &Audit{Good: 1234567, Doubled: 1234, Most: 100, Missing: 7, Surplus: 99999, PoisonPaid: 5}
	for _, naive := range []bool{false, true} {
		for _, before := range []int{0, 10} {
			set.Naive = naive
			r := &Result{
				Settings: set, Orders: 1000000, Sent: 1234567, Before: &Audit{Charges: before}, After: audit,
				Crashes: func(t Table) {
					t.Line("kill -9", 12, "of %d worker processes; for %d more the work was over too soon", 1000, 12)
				},
				Mending: &Mending{Groups: Groups{{Class: "validation", Count: 9, Sample: strings.Repeat("a text of words ", 20)}}, Killed: true, InDoubt: 3, Why: "nobody knows what the customer has ordered"},
			}
			var out bytes.Buffer
			NewScreen(&out).Start(set, 2000, 2400, [2]string{"queue", "SQS at http://127.0.0.1:12345"},
				[2]string{"workers", "8 processes; kill -9 hits one of them 12 times (-seed 18446744073709551615), and more words"})
			r.Print(&out)
			fits(t, out.String())
			require.Equal(t, naive, strings.Contains(out.String(), "WRONG, up to 100 times"))
		}
	}
}

// A log gets a line every few seconds; a terminal one line that is rewritten. Both say what is waited for.
func TestProgress(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			s := &Screen{Out: &out, terminal: terminal}
			s.Start(&Settings{}, 2000, 2000)
			began := time.Now()
			out.Reset()
			for i := range 200 {
				<-time.After(100 * time.Millisecond)
				d := broker.Depth{Visible: int64(1000 - 10*i), InFlight: 10}
				if i >= 100 {
					d.Visible = 0
				}
				s.Progress(d, 2000, 3, began)
			}
			s.Note("mending what is in the dead-letter queue")
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if terminal {
				lines = strings.Split(strings.TrimPrefix(out.String(), eraseLine), eraseLine)
				require.Len(t, lines, 201)
			} else {
				require.Len(t, lines, 6, "20 s, a line each 4 s, and the note")
			}
			fits(t, strings.Join(lines, "\n"))
			require.Contains(t, lines[0], "messages left, 3 crashes")
			require.Contains(t, lines[len(lines)-2], "10 messages left, in work or hidden")
			require.Contains(t, lines[len(lines)-1], "mending")
		})
	}
}

func TestWrap(t *testing.T) {
	require.Equal(t, []string{""}, wrap("", 10))
	require.Equal(t, []string{"äöü äöü", "averylongword", "a"}, wrap(" äöü  äöü averylongword a", 7))
	var out bytes.Buffer
	hang(&out, "name ", fmt.Sprint(strings.Repeat("word ", 20)))
	fits(t, out.String())
	require.True(t, strings.HasPrefix(strings.Split(out.String(), "\n")[1], "     word"))
}
