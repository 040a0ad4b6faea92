package letters

import (
	"errors"
	"strings"
	"testing"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/coretest/rig"
)

func TestActionsHaveNames(t *testing.T) {
	for a, want := range map[onceq.Action]string{onceq.Ack: "ack", onceq.Nack: "nack", onceq.Leave: "leave", 0: "none", 9: "none"} {
		if got := a.String(); got != want {
			t.Errorf("action %d is %q, want %q", uint8(a), got, want)
		}
	}
}

func TestParkedErrorSaysWhatIsKnown(t *testing.T) {
	e := &onceq.ParkedError{Key: rig.Key("a"), Class: "interrupted"}
	if s := e.Error(); !strings.Contains(s, "is parked (interrupted)") || strings.HasSuffix(s, ":") {
		t.Errorf("%q", s)
	}
	e.Text = "the card was charged"
	if s := e.Error(); !strings.HasSuffix(s, "may have happened: the card was charged") {
		t.Errorf("%q", s)
	}
}

// KeepInQueue says that there is no dead-letter queue. Whoever sends to it all the same hears so.
func TestKeepInQueueTakesNothing(t *testing.T) {
	if _, err := onceq.KeepInQueue.Send(t.Context(), []broker.Outgoing{rig.Message("a")}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("Send: %v", err)
	}
}
