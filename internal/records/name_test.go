package records

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"onceq_dedupe":             "",
		"_":                        "",
		"T9":                       "",
		strings.Repeat("a", 48):    "",
		strings.Repeat("a", 49):    "has 49 bytes, the limit is 48",
		"":                         "is empty",
		"9t":                       "no digit first",
		"a-b":                      "letters, digits and underscores",
		"a.b":                      "letters, digits and underscores",
		"käse":                     "letters, digits and underscores",
		"a b":                      "letters, digits and underscores",
		"a\"; DROP TABLE jobs; --": "letters, digits and underscores",
	} {
		err := CheckName("store: Options.Table", name)
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "store: Options.Table ")) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
