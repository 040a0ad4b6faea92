package dynamooutbox

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/dedupe/memstore"
	"github.com/onceq/onceq/internal/must"
)

func body(n int) broker.Outgoing { return broker.Outgoing{Body: make([]byte, n)} }

// TestItemsRefuse: what a transaction cannot carry is told before it, with the field and the limit.
func TestItemsRefuse(t *testing.T) {
	b := newOutbox(t, newFake().client(), testTable, testQueue, nil, nil)
	many := make(map[string]string)
	for i := range maxAttributes {
		many[fmt.Sprint(i)] = "x"
	}
	with := func(m broker.Outgoing, name, v string) broker.Outgoing {
		m.Attributes = map[string]string{name: v}
		return m
	}
	for name, c := range map[string]struct {
		ms   []broker.Outgoing
		want error
		text string
	}{
		"a huge body":            {[]broker.Outgoing{body(0), body(maxBody + 1)}, broker.ErrTooLarge, "message 1: broker: message too large: a body of 393217 bytes; at most 393216"},
		"a huge item":            {[]broker.Outgoing{with(body(maxBody), "a", strings.Repeat("x", 20<<10))}, broker.ErrTooLarge, "at most 409600"},
		"too much in all":        {[]broker.Outgoing{body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody), body(maxBody)}, broker.ErrTooLarge, "the first 11 messages"},
		"too many messages":      {make([]broker.Outgoing, 101), broker.ErrUnsupported, "101 messages; a transaction has at most 100 actions"},
		"too many attributes":    {[]broker.Outgoing{{Attributes: many}}, broker.ErrTooLarge, "101 attributes, with our own; at most 100"},
		"a long group":           {[]broker.Outgoing{{Group: strings.Repeat("g", 1025)}}, broker.ErrUnsupported, "a Group of 1025 bytes; it has at most 1024"},
		"a group in Latin 1":     {[]broker.Outgoing{{Group: "caf\xe9"}}, broker.ErrUnsupported, "not UTF-8"},
		"a value in Latin 1":     {[]broker.Outgoing{with(body(0), "a", "caf\xe9")}, broker.ErrUnsupported, `attribute "a"`},
		"a name in Latin 1":      {[]broker.Outgoing{with(body(0), "caf\xe9", "")}, broker.ErrUnsupported, "attribute's name"},
		"no name":                {[]broker.Outgoing{with(body(0), "", "x")}, broker.ErrUnsupported, "without a name"},
		"a delay of 11 years":    {[]broker.Outgoing{{Delay: 11 * 365 * 24 * time.Hour}}, broker.ErrUnsupported, "a Delay of"},
		"a sequence of words":    {[]broker.Outgoing{{Group: "g", Attributes: map[string]string{SequenceAttribute: "first"}}}, broker.ErrUnsupported, `onceq-seq is "first"`},
		"a sequence below zero":  {[]broker.Outgoing{inGroup("g", 1, ""), {Group: "g", Attributes: map[string]string{SequenceAttribute: "-1"}}}, broker.ErrUnsupported, `message 1`},
		"a sequence of no group": {[]broker.Outgoing{with(body(0), SequenceAttribute, "1")}, broker.ErrUnsupported, "without a Group"},
		"our own attribute":      {[]broker.Outgoing{with(body(0), broker.MetaAttribute, "x")}, nil, "our own"},
	} {
		items, err := b.Items(c.ms...)
		if err == nil || items != nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %d items, %v; want an error with %q", name, len(items), err, c.text)
		}
	}
	if items, err := b.Items(); items != nil || err != nil {
		t.Errorf("no messages: %v, %v", items, err)
	}
	largest := []broker.Outgoing{{Group: strings.Repeat("g", 1024)}, body(0), body(maxBody), {Body: []byte("\x00\xff"), Delay: longest}}
	if items, err := b.Items(largest...); len(items) != 4 || err != nil {
		t.Errorf("the largest: %d items, %v", len(items), err)
	}
}

func TestNewRefuses(t *testing.T) {
	c := newFake().client()
	memory := must.Get(memstore.New(nil))
	for text, f := range map[string]func() (*Outbox, error){
		"client is nil":            func() (*Outbox, error) { return New(nil, testTable, testQueue, nil, nil) },
		"the client has no region": func() (*Outbox, error) { return New(dynamodb.New(dynamodb.Options{}), testTable, testQueue, nil, nil) },
		`table is "a b"`:           func() (*Outbox, error) { return New(c, "a b", testQueue, nil, nil) },
		`table is "ab"`:            func() (*Outbox, error) { return New(c, "ab", testQueue, nil, nil) },
		"queue's name is empty":    func() (*Outbox, error) { return New(c, testTable, "", nil, nil) },
		"name has 256 bytes":       func() (*Outbox, error) { return New(c, testTable, strings.Repeat("q", 256), nil, nil) },
		"holds a '#'":              func() (*Outbox, error) { return New(c, testTable, "a#b", nil, nil) },
		"holds a NUL":              func() (*Outbox, error) { return New(c, testTable, "a\x00", nil, nil) },
		"leases is onceq.NoStore":  func() (*Outbox, error) { return New(c, testTable, testQueue, onceq.NoStore, nil) },
		"leases is a nil *mem":     func() (*Outbox, error) { return New(c, testTable, testQueue, (*memstore.Store)(nil), nil) },
		"lost with its process":    func() (*Outbox, error) { return New(c, testTable, testQueue, memory, nil) },
		"Options.Partitions: 129":  func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Partitions: 129}) },
		"Options.Partitions: -1":   func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Partitions: -1}) },
		"Options.Poll: 11s":        func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Poll: 11 * time.Second}) },
		"Options.Visibility: 3m0s": func() (*Outbox, error) {
			return New(c, testTable, testQueue, nil, &Options{Visibility: 3 * time.Minute})
		},
		"Options.Lease: 30ns is":    func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Lease: 30}) },
		"Options.Lease: 2s is not":  func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Lease: 2 * time.Second}) },
		"Options.Lease: 11m0s is n": func() (*Outbox, error) { return New(c, testTable, testQueue, nil, &Options{Lease: 11 * time.Minute}) },
	} {
		if b, err := f(); b != nil || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want an error with %q", err, text)
		}
	}
}

// TestProducerReceivesNothing: an Outbox without leases puts messages, and says why it reads none.
func TestProducerReceivesNothing(t *testing.T) {
	b := newOutbox(t, newFake().client(), testTable, testQueue, nil, nil)
	_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
	if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "New was given no leases") {
		t.Error(err)
	}
}

// TestItemsAgain: messages that were filled in give the same items, so that a transaction that is
// repeated puts one job, whether it has a token or not.
func TestItemsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(nil)
		ms := []broker.Outgoing{{Body: []byte("a")}, {Body: []byte("b"), Delay: time.Minute}, inGroup("g", -1, "c"), inGroup("g", 7, "d")}
		first, err := b.Items(ms...)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		again, err := b.Items(ms...)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("the same messages gave other items: %v\n%v\n%v", err, first, again)
		}
		for _, token := range []*string{aws.String("order-1"), aws.String("order-1"), nil} {
			if _, err := w.f.client().TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: again, ClientRequestToken: token}); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.f.items(testTable, testQueue)); n != 4 {
			t.Errorf("%d items are in the outbox, want 4", n)
		}
		// Two that share id and time, but not their content, are two messages.
		meta := broker.Meta{ID: "1", Key: "1", Created: time.Now()}
		w.put(b, broker.Outgoing{Body: []byte("x"), Meta: &meta})
		w.put(b, broker.Outgoing{Body: []byte("y"), Meta: &meta})
		if n := len(w.f.items(testTable, testQueue)); n != 6 {
			t.Errorf("%d items are in the outbox, want 6: one has taken the place of another", n)
		}
	})
}

// TestCancelledTransaction: of a transaction that was cancelled nothing is sent.
func TestCancelledTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.outbox(nil)
		order := types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String(testTable), Item: item{attrPK: text("order-1"), attrSK: text("order-1")},
			ConditionExpression: aws.String("attribute_not_exists(pk)"),
		}}
		try := func(job string) error {
			items, err := b.Items(onceq.Message("", "", []byte(job)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.f.client().TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: append(items, order)})
			return err
		}
		if err := try("first"); err != nil {
			t.Fatal(err)
		}
		if err := try("second"); !errors.As(err, new(*types.TransactionCanceledException)) {
			t.Fatal(err)
		}
		ack(t, b, want(t, b, 10, "first")...)
		want(t, b, 10, "")
	})
}

// TestSettings: what would put messages where nobody looks is refused at the start.
func TestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fails := func(err error, sentinel error, text string) {
			t.Helper()
			if err == nil || sentinel != nil && !errors.Is(err, sentinel) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want an error with %q", err, text)
			}
		}
		received := func(b *Outbox) error {
			_, err := b.Receive(t.Context(), broker.ReceiveOptions{Max: 1})
			return err
		}
		c := w.f.client()
		w.outbox(nil)
		other := newOutbox(t, c, testTable, testQueue, w.leases, &Options{Partitions: 16})
		fails(other.CreateTable(t.Context()), nil, "Options.Partitions: 16, and the queue was made with 8")
		fails(received(other), nil, "Options.Partitions: 16")
		fails(received(other), nil, `item pk="`+testQueue+`#config", sk="config" of table `+testTable) // the one to mend
		fails(received(newOutbox(t, c, testTable, "new", w.leases, nil)), broker.ErrNotFound, "call CreateTable")
		fails(received(newOutbox(t, c, "nowhere", testQueue, w.leases, nil)), broker.ErrNotFound, "is there a table nowhere")
		key := [2]string{testQueue + "#config", settingsSK}
		w.f.tables[testTable][key[0]+"\x00"+key[1]][attrVersion] = object{"N": "2"}
		newer := newOutbox(t, c, testTable, testQueue, w.leases, nil)
		fails(newer.CreateTable(t.Context()), nil, "version 2 of this queue, and this package knows version 1")
		fails(received(newer), nil, "version 2")
		fails(received(newer), nil, `item pk="`+testQueue+`#config", sk="config"`)
		w.f.tables["foreign"], w.f.keys["foreign"] = map[string]object{}, [2]string{"id"}
		fails(newOutbox(t, c, "foreign", testQueue, w.leases, nil).CreateTable(t.Context()), nil, "was made for something else")
	})
}

var _ dedupe.Store = shared{}
