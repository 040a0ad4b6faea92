package dynamostore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
)

var _ dedupe.Checker = (*Store)(nil)

// Check tells whether the table has the store's key, its index and its expiry. It needs the rights
// dynamodb:DescribeTable and DescribeTimeToLive, which workers do not, and costs no unit.
func (s *Store) Check(ctx context.Context) (fs []dedupe.Fault, err error) {
	if err := s.ready(ctx, 0); err != nil {
		return nil, err
	}
	t, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
	if err != nil {
		return nil, s.explain(ctx, "Check", err)
	}
	if t.Table == nil {
		return nil, fmt.Errorf("dynamostore: Check: DynamoDB has not described the table")
	}
	if err := s.keys().CheckKey(t.Table); err != nil {
		fs = append(fs, dedupe.Fault{Text: err.Error(), Mend: "make another table (CreateTable), and name it in New"})
	}
	if err := s.checkIndex(t.Table); err != nil {
		fs = append(fs, dedupe.Fault{Text: err.Error(), Mend: "docs/backend-dynamodb.md has the index"})
	}
	out, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		return fs, s.explain(ctx, "Check", err)
	}
	d := out.TimeToLiveDescription
	if d == nil {
		d = &types.TimeToLiveDescription{}
	}
	switch on := d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling; {
	case !on:
		fs = append(fs, dedupe.Fault{
			Text: "the table has no expiry: nothing removes records whose retention has ended, and each is paid for, for ever",
			Mend: fmt.Sprintf("aws dynamodb update-time-to-live --table-name %s --time-to-live-specification Enabled=true,AttributeName=%s", s.table, s.ttl),
		})
	case deref(d.AttributeName) != s.ttl:
		fs = append(fs, dedupe.Fault{
			Text: fmt.Sprintf("the table expires by attribute %q, and the store writes %q: nothing is removed", deref(d.AttributeName), s.ttl),
			Mend: fmt.Sprintf("Options.TTLAttribute: %q", deref(d.AttributeName)),
		})
	}
	return fs, nil
}
