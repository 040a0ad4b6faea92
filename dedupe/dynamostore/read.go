package dynamostore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/machine"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns what reads: Get and List, and Forget, which reads before it writes. Operators and
// their tools call them, and a worker calls Get after a Commit. Nothing here is locked.

// Get reads records, strongly consistent, all at once. Each costs a read unit for each 4 KB begun.
// It is for people, and for what never changes. A read may show the state from before a transaction
// that is being committed, so no answer of the store rests on a read alone.
func (s *Store) Get(ctx context.Context, ks []dedupe.Key) ([]*dedupe.Record, error) {
	if err := s.ready(ctx, len(ks)); err != nil {
		return nil, err
	}
	found, errs := make([]*dedupe.Record, len(ks)), make([]error, len(ks))
	each(len(ks), func(i int) {
		if ks[i].Validate() != nil {
			return // no such key is there
		}
		st, err := s.read(ctx, "Get", ks[i])
		if err != nil {
			errs[i] = err
			return
		}
		if st != nil && st.rec.Status != 0 && !st.rec.Expired(s.now()) {
			found[i] = &st.rec
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return found, nil
}

// read is what is stored under k; nil is nothing.
func (s *Store) read(ctx context.Context, call string, k dedupe.Key) (*stored, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: keyOf(k), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, s.explain(ctx, call, err)
	}
	s.keySeen.Store(true)
	st, err := s.decode(out.Item)
	if err != nil {
		return nil, foreign(call, err)
	}
	return st, nil
}

// List goes through records in the order of scope, then key, byte by byte. DynamoDB has no such
// order. So List first reads the whole table, whatever it looks for, and keeps the keys of what
// matches. Then it reads each record when its turn comes. A record that has ceased to match
// meanwhile is left out, and a new one is not seen. The first part costs a read unit for each 4 KB
// of the table, about a tenth of a unit a record. The second part costs a unit for each record that
// the caller takes.
//
// With Options.AttentionIndex a list of failed, parked or released records asks the index instead,
// by 16 queries, and reads as many records as there are of these. The index follows the table
// within a second or so, so the newest may be missing.
func (s *Store) List(ctx context.Context, q dedupe.Query) iter.Seq2[*dedupe.Record, error] {
	return func(yield func(*dedupe.Record, error) bool) {
		keys, err := s.matching(ctx, &q)
		if err != nil {
			yield(nil, err)
			return
		}
		records.ReadMatching(&q, keys, maxBatch, func(part []dedupe.Key) ([]*dedupe.Record, error) { return s.Get(ctx, part) }, yield)
	}
}

// matching are the keys of the records that q selects, in order.
func (s *Store) matching(ctx context.Context, q *dedupe.Query) ([]dedupe.Key, error) {
	if err := s.ready(ctx, 1); err != nil {
		return nil, err
	}
	if err := records.CheckAfter(q); err != nil {
		return nil, fmt.Errorf("dynamostore: %w", err)
	}
	if _, known := s.clock.now(); !known || !s.keySeen.Load() {
		// A Scan takes any table, so the read checks the table's key. It also brings the time, by
		// which the Scan leaves out what has expired.
		if _, err := s.read(ctx, "List", dedupe.Key{Scope: cmp.Or(q.Scope, "any"), Key: "any"}); err != nil {
			return nil, err
		}
	}
	if s.attentionIndex != "" && needsAttention(q.Status) {
		return s.attentive(ctx, q)
	}
	in := s.scan(q)
	var keys []dedupe.Key
	for {
		out, err := s.client.Scan(ctx, in)
		if err != nil {
			return nil, s.explain(ctx, "List", err)
		}
		for _, it := range out.Items {
			d := decoder{it: it}
			k := dedupe.Key{Scope: d.text(attrScope), Key: d.text(attrKey)}
			if strings.HasPrefix(k.Key, q.Prefix) {
				keys = append(keys, k)
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			break
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
	return records.Behind(q, keys), nil
}

// scan asks for the keys of what q selects. DynamoDB filters what it can, which saves bytes on the
// wire, not cost.
func (s *Store) scan(q *dedupe.Query) *dynamodb.ScanInput {
	w := s.write("list")
	filter := func(expr string) { w.conditions = append(w.conditions, expr) }
	w.given(forgotten, text(forgotten))
	filter(w.name(attrStatus) + " <> :" + forgotten)
	w.given("now", number(s.now().Unix()))
	filter("(attribute_not_exists(" + w.name(s.ttl) + ") OR " + w.name(s.ttl) + " > :now)")
	if q.Scope != "" {
		w.given(attrScope, text(q.Scope))
		filter(w.name(attrScope) + " = :" + attrScope)
	}
	if q.Prefix != "" && utf8.ValidString(q.Prefix) {
		w.given("prefix", text(q.Prefix))
		filter("begins_with(" + w.name(attrKey) + ", :prefix)")
	}
	if q.Status != 0 {
		w.given(attrStatus, text(q.Status.String()))
		filter(w.name(attrStatus) + " = :" + attrStatus)
	}
	if !q.Before.IsZero() {
		w.given(attrUpdated, moment(q.Before))
		filter(w.name(attrUpdated) + " < :" + attrUpdated)
	}
	if !q.LeaseBefore.IsZero() {
		w.given("dead", text(dedupe.Claimed.String()))
		w.given(attrLease, moment(q.LeaseBefore))
		filter(w.name(attrStatus) + " = :dead AND " + w.name(attrLease) + " < :" + attrLease)
	}
	return &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), FilterExpression: w.condition(),
		ProjectionExpression: aws.String(w.name(attrKey) + ", " + w.name(attrScope)), ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
	}
}

// Forget removes records, each with a read and a write. An item of some hundred bytes stays for 31
// days, because the fence must survive. If somebody changes the record all the time, the answer is
// [dedupe.ErrBusy].
func (s *Store) Forget(ctx context.Context, fs []dedupe.Forgotten) ([]error, error) {
	return answers(ctx, s, fs, func(f *dedupe.Forgotten) (answer, err error) {
		err = candid(ctx, "Forget", func(ctx context.Context) error { return s.forget(ctx, f) })
		return err, err
	})
}

func (s *Store) forget(ctx context.Context, f *dedupe.Forgotten) error {
	if err := f.Key.Validate(); err != nil {
		return fmt.Errorf("dynamostore: %w", err)
	}
	found, err := s.read(ctx, "Forget", f.Key)
	if err != nil {
		return err
	}
	for round := range claimTries {
		if round > 1 && !retry.Rest(ctx, conflictPause(round)) {
			break
		}
		if found == nil {
			return nil
		}
		now, known := s.clock.now()
		if !known { // the host was suspended since the answer came
			if found, err = s.read(ctx, "Forget", f.Key); err != nil {
				return err
			}
			continue
		}
		remove, err := machine.ApplyForget(&found.rec, f, now)
		if err != nil {
			return fmt.Errorf("dynamostore: Forget: %w", err)
		}
		if !remove {
			return nil
		}
		no, err := s.swap(ctx, f.Key, found, s.tombstone(f.Key, found.fence, found.version+1, now, now.Add(dedupe.DefaultRetention)))
		if err != nil || no == nil {
			return s.explain(ctx, "Forget", err)
		}
		if found, err = s.decode(no.item); err != nil {
			return foreign("Forget", err)
		}
	}
	return fmt.Errorf("dynamostore: Forget: the record changes all the time: %w", dedupe.ErrBusy)
}
