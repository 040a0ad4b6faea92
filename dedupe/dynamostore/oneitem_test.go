package dynamostore

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
)

// oneItem answers a claim's writes as a table does that has one item: what is inserted is there,
// and a condition is looked at. It knows this store's own conditions, each by its whole text, and
// no others.
type oneItem struct {
	tb   testing.TB
	item object
}

func (m *oneItem) answer(c stubCall) stubAnswer {
	m.tb.Helper()
	values, _ := c.in["ExpressionAttributeValues"].(object)
	ok := false
	switch cond := c.in["ConditionExpression"]; cond {
	case isAbsent.expr:
		ok = m.item == nil
	case sameFence.expr + " AND " + sameVersion.expr:
		ok = m.item != nil && m.is("fence", values[":was_fence"]) && m.is("version", values[":was_version"])
	case ownToken.expr, ownToken.expr + " AND " + stillClaimed.expr + " AND " + notLonger.expr:
		ok = m.item != nil && m.is("token", values[":token"])
	default:
		m.tb.Errorf("%s on the condition %v", c.op, cond)
	}
	switch {
	case !ok:
		return refused(m.item)
	case c.op == "PutItem":
		m.item = c.in["Item"].(object)
	case m.item == nil:
		m.item = written(c)
	}
	return applied
}

func (m *oneItem) is(attr string, v any) bool {
	return fieldOf(m.item, attr) == fieldOf(object{attr: v}, attr)
}

// written is the item of an insertion or a swap, or what an update sets.
func written(c stubCall) object {
	if it, ok := c.in["Item"].(object); ok {
		return it
	}
	it := maps.Clone(c.in["Key"].(object))
	for name, v := range c.in["ExpressionAttributeValues"].(object) {
		it[strings.TrimPrefix(name, ":")] = v
	}
	return it
}

// fieldOf is a text or a number.
func fieldOf(it object, attr string) any {
	v, _ := it[attr].(object)
	if v["S"] != nil {
		return v["S"]
	}
	return v["N"]
}

func numberOf(tb testing.TB, it object, attr string) int64 {
	tb.Helper()
	s, _ := fieldOf(it, attr).(string)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v in %v", attr, err, it)
	}
	return n
}

// timeOf is one of an item's times.
func timeOf(tb testing.TB, it object, attr string) time.Time {
	tb.Helper()
	return time.UnixMicro(numberOf(tb, it, attr))
}

// leaseEnd is the end of the lease that the last of some writes asks for.
func leaseEnd(tb testing.TB, cs []stubCall) time.Time {
	tb.Helper()
	return timeOf(tb, written(cs[len(cs)-1]), "lease_until")
}
