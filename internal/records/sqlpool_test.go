package records

import (
	"database/sql"
	"testing"
)

func TestIsSQLPool(t *testing.T) {
	type house struct{ *sql.DB }
	type house2 struct{ house }
	type tx struct{ *sql.Tx }
	for _, c := range []struct {
		v    any
		want bool
	}{
		{new(sql.DB), true},
		{house{}, true},
		{&house{}, true},
		{house2{}, true},
		{new(sql.Tx), false},
		{new(sql.Conn), false},
		{tx{}, false},
		{nil, false},
	} {
		if got := IsSQLPool(c.v); got != c.want {
			t.Errorf("%T: %v", c.v, got)
		}
	}
}
