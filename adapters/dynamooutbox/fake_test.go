package dynamooutbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// This file owns a DynamoDB in memory, so that tests run in virtual time: the requests that this
// package and its users send, with their limits. The SDK calls Do from many goroutines; mu guards
// everything. What it does is compared with DynamoDB Local's by the conformance tests, which run on
// both.

type object = map[string]any

// fake is the SDK's HTTP client.
type fake struct {
	mu     sync.Mutex
	tables map[string]map[string]object // by the key's two texts
	keys   map[string][2]string         // the names of a table's key
	tokens map[string]object            // ClientRequestToken: the request
	counts map[string]int               // requests by operation
	read   int                          // items that Query has read
	// fail answers a request instead, where it gives a code; "lost" drops the answer after the
	// request was done.
	fail func(op string, in object) (code string)
	// before runs before a request, without mu.
	before func(op string, in object)
	// after runs when a request was done, before its answer is seen, without mu.
	after func(op string)
	// leaveOut is how many deletes of a BatchWriteItem are not processed.
	leaveOut int
}

func newFake() *fake {
	return &fake{
		tables: make(map[string]map[string]object), keys: make(map[string][2]string),
		tokens: make(map[string]object), counts: make(map[string]int),
	}
}

const testRegion = "us-east-1"

func (f *fake) client() *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: testRegion, HTTPClient: f, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(credentials),
	})
}

// Do answers a request.
func (f *fake) Do(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var in object
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if f.before != nil {
		f.before(op, in)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	out, code, lost := f.serve(op, in)
	if f.after != nil {
		f.after(op)
	}
	if lost {
		return nil, io.ErrUnexpectedEOF
	}
	if out == nil {
		out = object{}
	}
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	if code != "" {
		res.StatusCode = http.StatusBadRequest
		out["__type"] = "com.amazonaws.dynamodb.v20120810#" + code
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	res.Header.Set("Content-Type", "application/x-amz-json-1.0")
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

func (f *fake) serve(op string, in object) (out object, code string, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[op]++
	if f.fail != nil {
		if code = f.fail(op, in); code != "" && code != "lost" {
			return object{"message": "as the test asks"}, code, false
		}
	}
	lost = code == "lost"
	switch op {
	case "CreateTable":
		out, code = f.create(in)
	case "DescribeTable":
		out, code = f.describe(textIn(in, "TableName"))
	case "TransactWriteItems":
		out, code = f.transact(in)
	case "BatchWriteItem":
		out, code = f.batch(in)
	default:
		table := f.tables[textIn(in, "TableName")]
		switch {
		case table == nil:
			return object{"message": "Requested resource not found"}, "ResourceNotFoundException", lost
		case op == "GetItem":
			out, code = object{}, ""
			if it := table[f.keyOf(textIn(in, "TableName"), in["Key"].(object))]; it != nil {
				out["Item"] = it
			}
		case op == "PutItem":
			out, code = f.put(in)
		case op == "Query":
			out, code = f.query(table, in)
		default:
			out, code = object{"message": op}, "UnknownOperationException"
		}
	}
	return out, code, lost
}

func textIn(in object, name string) string {
	s, _ := in[name].(string)
	return s
}

func (f *fake) create(in object) (object, string) {
	name := textIn(in, "TableName")
	if f.tables[name] != nil {
		return object{"message": "Table already exists: " + name}, "ResourceInUseException"
	}
	f.tables[name] = make(map[string]object)
	var keys [2]string
	for i, k := range in["KeySchema"].([]any) {
		keys[i] = textIn(k.(object), "AttributeName")
	}
	f.keys[name] = keys
	return nil, ""
}

func (f *fake) describe(name string) (object, string) {
	if f.tables[name] == nil {
		return object{"message": "Requested resource not found: Table: " + name}, "ResourceNotFoundException"
	}
	keys := f.keys[name]
	schema, definitions := []object{{"AttributeName": keys[0], "KeyType": "HASH"}}, []object{{"AttributeName": keys[0], "AttributeType": "S"}}
	if keys[1] != "" {
		schema = append(schema, object{"AttributeName": keys[1], "KeyType": "RANGE"})
		definitions = append(definitions, object{"AttributeName": keys[1], "AttributeType": "S"})
	}
	return object{"Table": object{"TableStatus": "ACTIVE", "KeySchema": schema, "AttributeDefinitions": definitions}}, ""
}

// keyOf is the key of an item in the fake's map.
func (f *fake) keyOf(table string, it object) string {
	keys := f.keys[table]
	part := func(name string) string {
		v, _ := it[name].(object)
		return textIn(v, "S")
	}
	return part(keys[0]) + "\x00" + part(keys[1])
}

// condition checks the one condition that the tests use.
func (f *fake) condition(in object, it object) (holds bool) {
	c := textIn(in, "ConditionExpression")
	return !strings.HasPrefix(c, "attribute_not_exists") || f.tables[textIn(in, "TableName")][f.keyOf(textIn(in, "TableName"), it)] == nil
}

func (f *fake) put(in object) (object, string) {
	it := in["Item"].(object)
	if !f.condition(in, it) {
		return object{"message": "The conditional request failed"}, "ConditionalCheckFailedException"
	}
	f.tables[textIn(in, "TableName")][f.keyOf(textIn(in, "TableName"), it)] = it
	return nil, ""
}

func (f *fake) transact(in object) (object, string) {
	if token := textIn(in, "ClientRequestToken"); token != "" {
		switch earlier := f.tokens[token]; {
		case earlier == nil:
		case reflect.DeepEqual(earlier, in):
			return nil, ""
		default:
			return object{"message": "the request differs"}, "IdempotentParameterMismatchException"
		}
	}
	reasons, failed := []object{}, false
	seen := make(map[string]bool)
	actions := in["TransactItems"].([]any)
	for _, a := range actions {
		p := a.(object)["Put"].(object)
		table, it := textIn(p, "TableName"), p["Item"].(object)
		if f.tables[table] == nil {
			return object{"message": "Requested resource not found"}, "ResourceNotFoundException"
		}
		key := table + "\x00" + f.keyOf(table, it)
		if seen[key] {
			return object{"message": "Transaction request cannot include multiple operations on one item"}, "ValidationException"
		}
		seen[key] = true
		reason := object{"Code": "None"}
		if sizeIn(it) > maxItem {
			return object{"message": "Item size has exceeded the maximum allowed size"}, "ValidationException"
		}
		if !f.condition(p, it) {
			reason, failed = object{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}, true
		}
		reasons = append(reasons, reason)
	}
	if failed {
		return object{"message": "Transaction cancelled", "CancellationReasons": reasons}, "TransactionCanceledException"
	}
	if len(actions) > maxActions {
		return object{"message": "Member must have length less than or equal to 100"}, "ValidationException"
	}
	for _, a := range actions {
		_, _ = f.put(a.(object)["Put"].(object))
	}
	if token := textIn(in, "ClientRequestToken"); token != "" {
		f.tokens[token] = in
	}
	return nil, ""
}

func (f *fake) batch(in object) (object, string) {
	out := object{}
	for table, rs := range in["RequestItems"].(object) {
		if f.tables[table] == nil {
			return object{"message": "Requested resource not found"}, "ResourceNotFoundException"
		}
		requests := rs.([]any)
		if len(requests) > settleBatch {
			return object{"message": "Too many items requested for the BatchWriteItem call"}, "ValidationException"
		}
		var left []any
		seen := make(map[string]bool)
		for _, r := range requests {
			key := f.keyOf(table, r.(object)["DeleteRequest"].(object)["Key"].(object))
			if seen[key] {
				return object{"message": "Provided list of item keys contains duplicates"}, "ValidationException"
			}
			if seen[key] = true; f.leaveOut > 0 {
				f.leaveOut--
				left = append(left, r)
				continue
			}
			delete(f.tables[table], key)
		}
		if len(left) > 0 {
			out["UnprocessedItems"] = object{table: left}
		}
	}
	return out, ""
}

// query answers up to Limit items, and up to 1 MB.
func (f *fake) query(table map[string]object, in object) (object, string) {
	given := in["ExpressionAttributeValues"].(object)
	value := func(name string) string { return textIn(given[name].(object), "S") }
	pk, from, to := value(":pk")+"\x00", value(":from"), value(":to")
	var sks []string
	for key := range table {
		if sk, ok := strings.CutPrefix(key, pk); ok && sk >= from && sk <= to {
			sks = append(sks, sk)
		}
	}
	slices.Sort(sks)
	limit, _ := strconv.Atoi(string(in["Limit"].(json.Number)))
	items, size := []object{}, 0
	out := object{}
	for i, sk := range sks {
		it := table[pk+sk]
		items, size = append(items, it), size+sizeIn(it)
		if (len(items) == limit || size >= 1<<20) && i < len(sks) {
			out["LastEvaluatedKey"] = object{attrPK: it[attrPK], attrSK: it[attrSK]}
			break
		}
	}
	f.read += len(items)
	out["Items"], out["Count"] = items, len(items)
	return out, ""
}

// sizeIn is the size of an item as DynamoDB counts it.
func sizeIn(it object) int {
	size := 0
	for name, v := range it {
		size += len(name)
		for kind, x := range v.(object) {
			switch x := x.(type) {
			case string:
				size += len(x)
				if kind == "B" {
					b, _ := base64.StdEncoding.DecodeString(x)
					size += len(b) - len(x)
				}
			case object:
				size += 3 + len(x) + sizeIn(x)
			}
		}
	}
	return size
}

// items are the sort keys of the messages of a queue, in order.
func (f *fake) items(table, queue string) (sks []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.tables[table] {
		pk, sk, _ := strings.Cut(key, "\x00")
		if strings.HasPrefix(pk, queue+"#") && sk != settingsSK {
			sks = append(sks, sk)
		}
	}
	slices.Sort(sks)
	return sks
}

// count is how many requests of an operation there were.
func (f *fake) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// failing lets requests of an operation fail with a code.
func (f *fake) failing(tb testing.TB, fail func(op string, in object) string) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}
