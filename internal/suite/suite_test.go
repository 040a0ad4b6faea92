package suite

import "testing"

func TestSummary(t *testing.T) {
	var s summary
	s.add("a", "")
	if got := s.String(); got != "1 cases run, none ruled out" {
		t.Error(got)
	}
	s.add("z", "Queue.Close is nil")
	s.add("groups-in-order", "Limits.OrderedGroups is false")
	const want = "1 cases run, 2 ruled out (groups-in-order: Limits.OrderedGroups is false; z: Queue.Close is nil)"
	if got := s.String(); got != want {
		t.Error(got)
	}
}
