//go:build unix

package localstack_test

import (
	"net"
	"strings"
	"testing"

	"github.com/onceq/onceq/localstack"
)

func TestFirestore(t *testing.T) {
	s := localstack.Firestore(t)
	if _, _, err := net.SplitHostPort(s.Addr); err != nil {
		t.Error(err)
	}
	if emulator := strings.HasPrefix(s.Version, "Firestore emulator"); emulator != (s.Kind == "emulator") {
		t.Errorf("%s is of the kind %q", s.Version, s.Kind)
	}
	if a, b := s.Project(t), s.Project(t); a == b || !strings.HasPrefix(a, "onceq-") {
		t.Errorf("two projects are %q and %q", a, b)
	}
}
