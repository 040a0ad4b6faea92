package dynamostore

import (
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// printer writes the actions of a transaction so that only equal ones give equal bytes. Each part
// has its length before it, each kind a letter, and maps go in the order of their keys.
type printer struct{ h hash.Hash }

func (p printer) size(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	p.h.Write(b[:])
}

func (p printer) bytes(b []byte) {
	p.size(len(b))
	p.h.Write(b)
}

func (p printer) text(s string) { p.bytes([]byte(s)) }

func (p printer) flag(b bool) {
	if b {
		p.h.Write([]byte{1})
		return
	}
	p.h.Write([]byte{0})
}

func (p printer) optional(s *string) {
	p.flag(s != nil)
	p.text(deref(s))
}

func (p printer) texts(ss []string) {
	p.size(len(ss))
	for _, s := range ss {
		p.text(s)
	}
}

func (p printer) item(it item) {
	p.size(len(it))
	for _, k := range slices.Sorted(maps.Keys(it)) {
		p.text(k)
		p.value(it[k])
	}
}

func (p printer) value(v value) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		p.text("S")
		p.text(v.Value)
	case *types.AttributeValueMemberN:
		p.text("N")
		p.text(v.Value)
	case *types.AttributeValueMemberB:
		p.text("B")
		p.bytes(v.Value)
	case *types.AttributeValueMemberBOOL:
		p.text("BOOL")
		p.flag(v.Value)
	case *types.AttributeValueMemberNULL:
		p.text("NULL")
		p.flag(v.Value)
	case *types.AttributeValueMemberSS:
		p.text("SS")
		p.texts(v.Value)
	case *types.AttributeValueMemberNS:
		p.text("NS")
		p.texts(v.Value)
	case *types.AttributeValueMemberBS:
		p.text("BS")
		p.size(len(v.Value))
		for _, b := range v.Value {
			p.bytes(b)
		}
	case *types.AttributeValueMemberL:
		p.text("L")
		p.size(len(v.Value))
		for _, e := range v.Value {
			p.value(e)
		}
	case *types.AttributeValueMemberM:
		p.text("M")
		p.item(v.Value)
	default: // none, or one that the SDK does not know and will refuse
		p.text(fmt.Sprintf("%T", v))
	}
}

func (p printer) actions(as []types.TransactWriteItem) {
	p.size(len(as))
	for i := range as {
		p.action(&as[i])
	}
}

func (p printer) action(a *types.TransactWriteItem) {
	p.flag(a.ConditionCheck != nil)
	if c := a.ConditionCheck; c != nil {
		p.common(c.TableName, c.ConditionExpression, c.ExpressionAttributeNames, c.ExpressionAttributeValues)
		p.item(c.Key)
	}
	p.flag(a.Delete != nil)
	if d := a.Delete; d != nil {
		p.common(d.TableName, d.ConditionExpression, d.ExpressionAttributeNames, d.ExpressionAttributeValues)
		p.item(d.Key)
	}
	p.flag(a.Put != nil)
	if w := a.Put; w != nil {
		p.common(w.TableName, w.ConditionExpression, w.ExpressionAttributeNames, w.ExpressionAttributeValues)
		p.item(w.Item)
	}
	p.flag(a.Update != nil)
	if u := a.Update; u != nil {
		p.common(u.TableName, u.ConditionExpression, u.ExpressionAttributeNames, u.ExpressionAttributeValues)
		p.item(u.Key)
		p.optional(u.UpdateExpression)
	}
}

func (p printer) common(table, condition *string, names map[string]string, given item) {
	p.optional(table)
	p.optional(condition)
	p.size(len(names))
	for _, k := range slices.Sorted(maps.Keys(names)) {
		p.text(k)
		p.text(names[k])
	}
	p.item(given)
}
