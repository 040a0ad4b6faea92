package dynamostore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/internal/must"
)

// TestCheck: a table without an expiry, or with that of another attribute, or without the index
// that Options name, is a fault with what mends it. One that CreateTable has made has none.
func TestCheck(t *testing.T) {
	t.Parallel()
	c := openClient(t)
	table := newTable(t)
	s, err := New(c, table, &Options{TTLAttribute: "gone"})
	if err := errors.Join(err, s.CreateTable(t.Context())); err != nil {
		t.Fatal(err)
	}
	bare := newTable(t)
	plain := must.Get(New(c, bare, nil))
	if _, err := c.CreateTable(t.Context(), plain.newTable()); err != nil {
		t.Fatal(err)
	}
	if err := dynamodb.NewTableExistsWaiter(c).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &bare}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		table string
		o     *Options
		want  []string
	}{
		{table, &Options{TTLAttribute: "gone"}, nil},
		{table, &Options{TTLAttribute: "other"}, []string{`expires by attribute "gone", and the store writes "other"`}},
		{bare, &Options{AttentionIndex: "attention"}, []string{"no index attention", "no expiry"}},
	} {
		s := must.Get(New(c, w.table, w.o))
		fs, err := s.Check(t.Context())
		if err != nil || len(fs) != len(w.want) {
			t.Fatal(fs, err)
		}
		for i, f := range fs {
			if !strings.Contains(f.Text, w.want[i]) || f.Mend == "" {
				t.Errorf("%+v, want %s", f, w.want[i])
			}
		}
	}
	foreign := newTable(t)
	if _, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &foreign, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	other := must.Get(New(c, foreign, nil))
	if fs, err := other.Check(t.Context()); err != nil || len(fs) == 0 || !strings.Contains(fs[0].Mend, "another table") {
		t.Error(fs, err)
	}
}
