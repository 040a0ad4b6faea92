package dynamostore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
)

// This file owns the index of what people look for, which List reads, and the service's time for
// those who ask. Nothing is locked.

// attentive are the keys that the index has under q's status, in order. What it has of an older
// state of a record is told by the read that follows.
func (s *Store) attentive(ctx context.Context, q *dedupe.Query) ([]dedupe.Key, error) {
	found, errs := make([][]dedupe.Key, shards), make([]error, shards)
	each(shards, func(n int) { found[n], errs[n] = s.shardKeys(ctx, q, shard(q.Status, n)) })
	for _, err := range errs {
		if isInvalid(err, "specified index") {
			err = fmt.Errorf("%w (Options.AttentionIndex names an index that table %s has not)", err, s.table)
		}
		if err != nil {
			return nil, s.explain(ctx, "List", err)
		}
	}
	return records.Behind(q, slices.Concat(found...)), nil
}

func (s *Store) shardKeys(ctx context.Context, q *dedupe.Query, value string) (keys []dedupe.Key, err error) {
	in := &dynamodb.QueryInput{
		TableName: &s.table, IndexName: &s.attentionIndex,
		KeyConditionExpression:    aws.String("#" + attrAttention + " = :" + attrAttention),
		ExpressionAttributeNames:  map[string]string{"#" + attrAttention: attrAttention},
		ExpressionAttributeValues: item{":" + attrAttention: text(value)},
	}
	for {
		out, err := s.client.Query(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, it := range out.Items {
			d := decoder{it: it}
			k := dedupe.Key{Scope: d.text(attrScope), Key: d.text(attrKey)}
			if (q.Scope == "" || q.Scope == k.Scope) && strings.HasPrefix(k.Key, q.Prefix) {
				keys = append(keys, k)
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return keys, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

var _ dedupe.Clock = (*Store)(nil)

// Now is the service's time, by which the store judges leases: the host's, corrected by the Date of
// every answer. A store that has had no answer yet reads a record for it. Where answers have no
// Date it is the host's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.ready(ctx, 0); err != nil {
		return time.Time{}, err
	}
	if t, known := s.clock.now(); known {
		return t, nil
	}
	if _, err := s.read(ctx, "Now", dedupe.Key{Scope: "any", Key: "any"}); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}
