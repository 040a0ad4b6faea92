package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the conditional writes: their expressions, and how each is sent until it is
// answered. Claims, renewals, settlements and completions build them. A write belongs to one
// goroutine, so nothing here is locked.

// A clause is one condition of a write. A write's conditions are data, so that tests can leave out
// each of them and see that it was needed.
type clause struct {
	name string
	expr string
	// attrs are the attributes that expr names, as #attr; values those that it compares with, as
	// :attr.
	attrs []string
}

var (
	// A claim of a key without a record.
	isAbsent = clause{"no record", "attribute_not_exists(#key)", []string{attrKey}}
	// A change of what was read: each write raises the version, and an item that was deleted and
	// made anew, whose versions begin anew, has another fence.
	sameFence   = clause{"the fence that was read", "#fence = :was_fence", []string{attrFence}}
	sameVersion = clause{"the version that was read", "#version = :was_version", []string{attrVersion}}
	// Renewals and settlements.
	ownToken     = clause{"the claim's own token", "#token = :token", []string{attrToken}}
	stillClaimed = clause{"still claimed", "#status = :claimed", []string{attrStatus}}
	stillParked  = clause{"still parked", "#status = :parked", []string{attrStatus}}
	notSettled   = clause{"claimed or parked", "(#status = :claimed OR #status = :parked)", []string{attrStatus}}
	olderState   = clause{"no newer state", "(attribute_not_exists(#state_no) OR #state_no < :state_no)", []string{attrStateNo}}
	notLonger    = clause{"no longer lease", "#lease_until <= :lease_until", []string{attrLease}}
)

// write gathers the expressions of one conditional write.
type write struct {
	s           *Store
	kind        string // for tests
	sets, drops []string
	conditions  []string
	names       map[string]string
	values      item
}

func (s *Store) write(kind string) *write {
	return &write{s: s, kind: kind, names: make(map[string]string), values: make(item)}
}

// name is attr within an expression: many of the attributes are reserved words.
func (w *write) name(attr string) string {
	n := "#" + attr
	if attr == w.s.ttl {
		n = "#ttl"
	}
	w.names[n] = attr
	return n
}

func (w *write) set(attr string, v value) {
	p := ":" + attr
	if attr == w.s.ttl {
		p = ":ttl"
	}
	w.values[p] = v
	w.sets = append(w.sets, w.name(attr)+" = "+p)
}

// setText leaves out an empty one.
func (w *write) setText(attr, v string) {
	if v == "" {
		w.drop(attr)
		return
	}
	w.set(attr, text(clean(v)))
}

func (w *write) drop(attrs ...string) {
	for _, a := range attrs {
		w.drops = append(w.drops, w.name(a))
	}
}

// add adds n to a number that is there.
func (w *write) add(attr string, n int) {
	p := ":add_" + attr
	w.values[p] = number(n)
	name := w.name(attr)
	w.sets = append(w.sets, name+" = "+name+" + "+p)
}

// setOnce keeps what is there already.
func (w *write) setOnce(attr string, v value) {
	p := ":" + attr
	w.values[p] = v
	name := w.name(attr)
	w.sets = append(w.sets, name+" = if_not_exists("+name+", "+p+")")
}

// given is a value that the conditions compare with.
func (w *write) given(name string, v value) { w.values[":"+name] = v }

func (w *write) when(cs ...*clause) {
	for _, c := range cs {
		for _, a := range c.attrs {
			w.name(a)
		}
		expr := c.expr
		if w.s.leaveOut != nil && w.s.leaveOut(w.kind, c) {
			// DynamoDB refuses names and values that no expression uses. So the clause stays, in
			// a form that always holds.
			expr = "(" + expr + " OR attribute_exists(#key) OR attribute_not_exists(#key))"
			w.name(attrKey)
		}
		w.conditions = append(w.conditions, expr)
	}
}

// own is the condition of a renewal or a settlement.
func (w *write) own(t dedupe.Token, cs ...*clause) {
	w.given(attrToken, text(t.Hex()))
	for _, c := range cs {
		switch c {
		case &stillParked:
			w.given("parked", text(dedupe.Parked.String()))
		case &notSettled:
			w.given("parked", text(dedupe.Parked.String()))
			fallthrough
		case &stillClaimed:
			w.given("claimed", text(dedupe.Claimed.String()))
		}
	}
	w.when(&ownToken)
	w.when(cs...)
}

func (w *write) condition() *string {
	c := strings.Join(w.conditions, " AND ")
	return &c
}

func (w *write) expression() *string {
	var b strings.Builder
	b.WriteString("SET ")
	b.WriteString(strings.Join(w.sets, ", "))
	if len(w.drops) > 0 {
		b.WriteString(" REMOVE ")
		b.WriteString(strings.Join(w.drops, ", "))
	}
	e := b.String()
	return &e
}

// refusal is a condition that did not hold, and the item as it was at that moment. The item is
// empty if there was none.
type refusal struct{ item item }

// update sends w for the record under k. After success no and err are nil, and it holds the item
// if answer asks for that.
func (w *write) update(ctx context.Context, k dedupe.Key, patient bool, answer types.ReturnValue) (it item, no *refusal, err error) {
	in := &dynamodb.UpdateItemInput{
		TableName: &w.s.table, Key: keyOf(k), UpdateExpression: w.expression(), ConditionExpression: w.condition(),
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values, ReturnValues: answer,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	no, err = w.s.conditional(ctx, patient, func() error {
		out, err := w.s.client.UpdateItem(ctx, in)
		if err == nil {
			it = out.Attributes
		}
		return err
	})
	if err == nil {
		w.s.keySeen.Store(true)
	}
	return it, no, err
}

// put replaces the whole item, where w's conditions hold.
func (w *write) put(ctx context.Context, it item) (*refusal, error) {
	in := &dynamodb.PutItemInput{
		TableName: &w.s.table, Item: it, ConditionExpression: w.condition(),
		ExpressionAttributeNames:            w.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if len(w.values) > 0 {
		in.ExpressionAttributeValues = w.values
	}
	return w.s.conditional(ctx, false, func() error {
		_, err := w.s.client.PutItem(ctx, in)
		return err
	})
}

// swap puts it, the item under k, in the place of was, which was read before. A nil was means that
// nothing was there.
func (s *Store) swap(ctx context.Context, k dedupe.Key, was *stored, it item) (*refusal, error) {
	w := s.write("insert")
	switch {
	case was != nil:
		w.kind = "swap"
		w.given("was_fence", number(was.fence))
		w.given("was_version", number(was.version))
		w.when(&sameFence, &sameVersion)
		return w.put(ctx, it)
	case s.keySeen.Load():
		w.when(&isAbsent)
		return w.put(ctx, it)
	}
	// PutItem would not notice a table without a sort key, and would mix up the scopes. UpdateItem
	// names the whole key, so such a table refuses it.
	w.kind = "first insert"
	for attr, v := range it {
		if attr != attrKey && attr != attrScope {
			w.set(attr, v)
		}
	}
	w.when(&isAbsent)
	_, no, err := w.update(ctx, k, false, types.ReturnValueNone)
	return no, err
}

const (
	// conflictTries bound how often a write meets a transaction that is being committed before the
	// record counts as locked.
	conflictTries = 6
	// patientTries, some twenty seconds, bound a call whose context never ends.
	patientTries = 100
)

// conditional makes a write. A transaction that holds the item usually ends within milliseconds. A
// patient write waits for it until ctx ends; any other answers [dedupe.ErrBusy] after some tries.
func (s *Store) conditional(ctx context.Context, patient bool, send func() error) (*refusal, error) {
	for n := 1; ; n++ {
		err := send()
		if err == nil {
			return nil, nil
		}
		if no := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &no) {
			return &refusal{no.Item}, nil
		}
		if !isConflict(err) {
			return nil, err
		}
		if n == patientTries || n == conflictTries && !patient || !retry.Rest(ctx, conflictPause(n)) {
			return nil, fmt.Errorf("%w: %w", dedupe.ErrBusy, err)
		}
	}
}

// conflictPause is the one before the n-th repeat: 4 ms doubled up to 250 ms, half of it at random.
func conflictPause(n int) time.Duration {
	return retry.Within(4*time.Millisecond, 250*time.Millisecond, n)
}
