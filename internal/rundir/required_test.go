package rundir

import (
	"strings"
	"testing"
)

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		value, name string
		want        bool
	}{
		{"", "postgres", false},
		{"all", "postgres", true},
		{"all", "dynamodb", true},
		{"all", "pubsub", false}, // few machines can have it
		{"all", "firestore", false},
		{"all,pubsub", "pubsub", true},
		{"all,firestore", "pubsub", false},
		{"all,firestore", "firestore", true},
		{"all", "chromium", false},
		{"all,chromium", "chromium", true},
		{"pubsub", "pubsub", true},
		{"pubsub", "sqs", false},
		{" sqs ,", "sqs", true},
	} {
		if got, err := Required(c.value, c.name); got != c.want || err != nil {
			t.Errorf("%q asks for %s: %v, %v", c.value, c.name, got, err)
		}
	}
	for _, value := range []string{"al", "all,pubsubs", "none"} {
		if _, err := Required(value, "pubsub"); err == nil || !strings.Contains(err.Error(), "there is no back end") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
