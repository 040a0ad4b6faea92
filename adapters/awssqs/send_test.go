package awssqs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/broker"
)

func sized(n int) broker.Outgoing { return broker.Outgoing{Body: bytes.Repeat([]byte("x"), n)} }

func grouped(o broker.Outgoing) broker.Outgoing {
	o.Group = "g"
	return o
}

// requests are the ids that were sent together.
func (s *stub) requests() (rs []string) {
	for _, c := range s.of("SendMessageBatch") {
		var r strings.Builder
		for _, e := range c.entries() {
			r.WriteString(e["Id"].(string))
		}
		rs = append(rs, r.String())
	}
	return rs
}

func TestSendSplitsByBytes(t *testing.T) {
	const mib = 1 << 20
	withAttribute := sized(mib/2 - len("abcString123"))
	withAttribute.Attributes = map[string]string{"abc": "123"}
	over := sized(mib/2 - len("abcString123") + 1)
	over.Attributes = withAttribute.Attributes
	for name, c := range map[string]struct {
		ms   []broker.Outgoing
		want []string
	}{
		"ten small ones": {slices.Repeat([]broker.Outgoing{sized(1)}, 10), []string{"0123456789"}},
		"just fit":       {[]broker.Outgoing{sized(mib / 2), sized(mib / 2)}, []string{"01"}},
		"just do not":    {[]broker.Outgoing{sized(mib / 2), sized(mib/2 + 1)}, []string{"0", "1"}},
		"each alone":     {[]broker.Outgoing{sized(mib), sized(mib), sized(mib)}, []string{"0", "1", "2"}},
		"attributes fit": {[]broker.Outgoing{sized(mib / 2), withAttribute}, []string{"01"}},
		"and do not":     {[]broker.Outgoing{sized(mib / 2), over}, []string{"0", "1"}},
		"one too large":  {[]broker.Outgoing{sized(1), sized(mib + 1), sized(1)}, []string{"02"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := stubbed(t, stubURL, nil, allApplied)
			ids, err := b.Send(t.Context(), c.ms)
			if got := s.requests(); !slices.Equal(got, c.want) {
				t.Errorf("the requests held %q, want %q", got, c.want)
			}
			for i := range c.ms {
				want := fmt.Sprint("sent-", i)
				if len(c.ms[i].Body) > mib {
					want = ""
				}
				if at := broker.ErrAt(err, i); ids[i] != want || (want == "") != errors.Is(at, broker.ErrTooLarge) || (want != "") != (at == nil) {
					t.Errorf("entry %d was answered %q, %v", i, ids[i], at)
				}
			}
		})
	}
}

// What was not sent behind a failure can be sent again in order; what was sent could not be taken
// back.
func TestSendStopsBehindAFailureOnFIFO(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name   string
		answer stubAnswer
		is     error
	}{
		{"refused", stubAnswer{code: "RequestThrottled"}, broker.ErrThrottled},
		{"lost", stubAnswer{lost: errReset}, errReset},
		{"an entry", stubAnswer{out: object{"Failed": []object{entryFails("0", "RequestThrottled", "")}}}, broker.ErrThrottled},
	} {
		for _, url := range []string{stubURL, fifoURL} {
			s := &stub{answer: func(call stubCall) stubAnswer {
				if call.entries()[0]["Id"] == "0" {
					return c.answer
				}
				return allApplied(call)
			}}
			b := makeBroker(t, s.client(once), url, nil)
			ids, err := b.Send(t.Context(), []broker.Outgoing{grouped(sized(mib)), grouped(sized(mib))})
			if !errors.Is(broker.ErrAt(err, 0), c.is) || ids[0] != "" {
				t.Errorf("%s: the entry that failed was answered %q, %v", c.name, ids[0], broker.ErrAt(err, 0))
			}
			fifo := url == fifoURL
			if at := broker.ErrAt(err, 1); fifo != errors.Is(at, c.is) || fifo != (ids[1] == "") {
				t.Errorf("%s: on FIFO %v the entry behind it was answered %q, %v", c.name, fifo, ids[1], at)
			}
			if n := len(s.calls); fifo && n != 1 || !fifo && n != 2 {
				t.Errorf("%s: on FIFO %v there were %d calls", c.name, fifo, n)
			}
		}
	}
}

func TestSendAsAWhole(t *testing.T) {
	s := &stub{answer: func(stubCall) stubAnswer { return stubAnswer{code: "UnsupportedOperation"} }}
	b := makeBroker(t, s.client(once), stubURL, nil)
	_, err := b.Send(t.Context(), []broker.Outgoing{sized(1), sized(1)})
	var byPosition *broker.BatchError
	if !errors.Is(err, broker.ErrUnsupported) || errors.As(err, &byPosition) {
		t.Errorf("a request that was refused as a whole was answered: %v", err)
	}
}

func TestSendErrorsAreMapped(t *testing.T) {
	for _, c := range []struct {
		code, text string
		want       error
	}{
		{"InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.", broker.ErrTooLarge},
		{"InvalidParameterValue", "something new", broker.ErrUnsupported},
		{"InvalidMessageContents", "", broker.ErrUnsupported},
		{"InvalidParameterValue", "Message (user) attribute types must be shorter than 256 Bytes", broker.ErrUnsupported},
		{"InvalidParameterValue", "a receipt", broker.ErrUnsupported},
		{"MissingRequiredParameterException", "", broker.ErrUnsupported},
		{"QueueDoesNotExist", "", broker.ErrNotFound},
		{"KmsAccessDenied", "", nil},
		{"ReceiptHandleIsInvalid", "", nil},
	} {
		s := &stub{answer: func(stubCall) stubAnswer {
			return stubAnswer{out: object{"Failed": []object{entryFails("0", c.code, c.text)}}}
		}}
		ids, err := makeBroker(t, s.client(once), stubURL, nil).Send(t.Context(), []broker.Outgoing{sized(1)})
		at := broker.ErrAt(err, 0)
		if at == nil || len(ids) != 1 || ids[0] != "" {
			t.Fatalf("%s was answered %q, %v", c.code, ids, err)
		}
		for _, is := range []error{broker.ErrReceiptExpired, broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrNotFound, broker.ErrThrottled} {
			if errors.Is(at, is) != (is == c.want) {
				t.Errorf("%s %q was answered %v, want %v", c.code, c.text, at, c.want)
			}
		}
	}
}

func TestSendChecksWhatWasStored(t *testing.T) {
	answer := func(c stubCall) stubAnswer {
		a := allApplied(c)
		es := a.out.(object)["Successful"].([]object)
		es[1]["MD5OfMessageBody"] = strings.Repeat("0", 32)
		return a
	}
	b, _ := stubbed(t, stubURL, nil, answer)
	ids, err := b.Send(t.Context(), []broker.Outgoing{sized(1), sized(2), sized(3)})
	if broker.ErrAt(err, 0) != nil || !errors.Is(broker.ErrAt(err, 1), awssqs.ErrChecksum) || broker.ErrAt(err, 2) != nil {
		t.Errorf("it was answered: %v", err)
	}
	if !slices.Equal(ids, []string{"sent-0", "", "sent-2"}) || b.Stats().Sent != 2 {
		t.Errorf("ids are %q, Stats %+v", ids, b.Stats())
	}
	// A FIFO queue may tell the checksum of the message that the present one is a duplicate of.
	b, _ = stubbed(t, fifoURL, nil, answer)
	ids, err = b.Send(t.Context(), []broker.Outgoing{grouped(sized(1)), grouped(sized(2))})
	if err != nil || !slices.Equal(ids, []string{"sent-0", "sent-1"}) || b.Stats().Sent != 2 {
		t.Errorf("on FIFO it was answered %q, %v, Stats %+v", ids, err, b.Stats())
	}
}

func TestSendRefusesWhatSQSDoesNotTake(t *testing.T) {
	attribute := func(name string) broker.Outgoing {
		return broker.Outgoing{Body: []byte("a"), Attributes: map[string]string{name: "x"}}
	}
	for name, c := range map[string]struct {
		url  string
		m    broker.Outgoing
		want error
	}{
		"name with a space":          {stubURL, attribute("a b"), broker.ErrUnsupported},
		"name with a letter":         {stubURL, attribute("naïve"), broker.ErrUnsupported},
		"empty name":                 {stubURL, attribute(""), broker.ErrUnsupported},
		"long name":                  {stubURL, attribute(strings.Repeat("n", 257)), broker.ErrUnsupported},
		"period first":               {stubURL, attribute(".a"), broker.ErrUnsupported},
		"period last":                {stubURL, attribute("a."), broker.ErrUnsupported},
		"periods":                    {stubURL, attribute("a..b"), broker.ErrUnsupported},
		"reserved":                   {stubURL, attribute("aWs.x"), broker.ErrUnsupported},
		"reserved too":               {stubURL, attribute("AMAZON.x"), broker.ErrUnsupported},
		"ours":                       {stubURL, broker.Outgoing{Body: []byte("a"), Meta: &broker.Meta{ID: "j"}, Attributes: map[string]string{"onceq": "x"}}, broker.ErrBadMeta},
		"long delay":                 {stubURL, broker.Outgoing{Body: []byte("a"), Delay: 15*time.Minute + 1}, broker.ErrUnsupported},
		"the longest delay":          {stubURL, broker.Outgoing{Body: []byte("a"), Delay: math.MaxInt64}, broker.ErrUnsupported},
		"the longest delay, on FIFO": {fifoURL, broker.Outgoing{Body: []byte("a"), Group: "g", Delay: math.MaxInt64}, broker.ErrUnsupported},
		"negative delay":             {stubURL, broker.Outgoing{Body: []byte("a"), Delay: -1}, broker.ErrUnsupported},
		"delay on FIFO":              {fifoURL, broker.Outgoing{Body: []byte("a"), Group: "g", Delay: 1}, broker.ErrUnsupported},
		"no group on FIFO":           {fifoURL, broker.Outgoing{Body: []byte("a")}, broker.ErrUnsupported},
		"long group":                 {fifoURL, broker.Outgoing{Body: []byte("a"), Group: strings.Repeat("g", 129)}, broker.ErrUnsupported},
		"group with a space":         {stubURL, broker.Outgoing{Body: []byte("a"), Group: "a b"}, broker.ErrUnsupported},
		"dedup id with a line":       {fifoURL, broker.Outgoing{Body: []byte("a"), Group: "g", DedupID: "a\n"}, broker.ErrUnsupported},
		"long dedup id":              {fifoURL, broker.Outgoing{Body: []byte("a"), Group: "g", DedupID: strings.Repeat("d", 129)}, broker.ErrUnsupported},
	} {
		b, s := stubbed(t, c.url, nil, allApplied)
		_, err := b.Send(t.Context(), []broker.Outgoing{c.m})
		if !errors.Is(broker.ErrAt(err, 0), c.want) || len(s.calls) > 0 {
			t.Errorf("%s was answered %v after %d calls", name, err, len(s.calls))
		}
	}
	b, s := stubbed(t, stubURL, nil, allApplied)
	fine := attribute("a.b-c_9")
	fine.Attributes["aws"], fine.Attributes["awsx.y"], fine.Attributes[strings.Repeat("n", 256)] = "1", "2", "3"
	fine.Group, fine.DedupID, fine.Delay = strings.Repeat("~!", 64), "not for\nstandard queues", 15*time.Minute
	if _, err := b.Send(t.Context(), []broker.Outgoing{fine}); err != nil {
		t.Error(err)
	}
	e := s.calls[0].entries()[0]
	if e["MessageDeduplicationId"] != nil || e["DelaySeconds"] != 900.0 || e["MessageGroupId"] != fine.Group {
		t.Errorf("%v was sent", e)
	}
}

// What SQS cannot carry travels encoded, and is marked.
func TestSendEncodes(t *testing.T) {
	b, s := stubbed(t, stubURL, nil, allApplied)
	meta := func(o broker.Outgoing) broker.Outgoing {
		o.Meta = &broker.Meta{ID: "j", BodyEncoding: "rot13"}
		return o
	}
	text := func(s string) broker.Outgoing { return broker.Outgoing{Body: []byte(s)} }
	for i, c := range []struct {
		m          broker.Outgoing
		body, meta string
	}{
		{text("plain\t\r\n\u0085\U0010ffff"), "plain\t\r\n\u0085\U0010ffff", ""},
		{meta(text("plain")), "plain", `{"v":1,"id":"j"}`},
		{text("\x00"), "AA==", `{"v":1,"be":"base64"}`},
		{meta(text("\xff")), "/w==", `{"v":1,"id":"j","be":"base64"}`},
		{text("\ufffe"), "77++", `{"v":1,"be":"base64"}`},
		{text("\uffff"), "77+/", `{"v":1,"be":"base64"}`},
		{text("\ufffd"), "\ufffd", ""},
		{text("\xed\xa0\x80"), "7aCA", `{"v":1,"be":"base64"}`},
		{text("a\xc3"), "YcM=", `{"v":1,"be":"base64"}`},
		{text(""), "\n", `{"v":1,"be":"base64"}`},
		{meta(text("")), "\n", `{"v":1,"id":"j","be":"base64"}`},
	} {
		if _, err := b.Send(t.Context(), []broker.Outgoing{c.m}); err != nil {
			t.Fatal(err)
		}
		e := s.calls[i].entries()[0]
		got := ""
		if as, ok := e["MessageAttributes"].(object); ok {
			got = as["onceq"].(object)["StringValue"].(string)
		}
		if e["MessageBody"] != c.body || got != c.meta {
			t.Errorf("%q with %+v went as %q with %q, want %q with %q", c.m.Body, c.m.Meta, e["MessageBody"], got, c.body, c.meta)
		}
	}
}

func TestDedupIDs(t *testing.T) {
	job := func(change func(*broker.Outgoing)) broker.Outgoing {
		o := broker.Outgoing{Body: []byte("a"), Group: "g", Meta: &broker.Meta{ID: "j", Type: "t", Key: "k"}}
		change(&o)
		return o
	}
	same := func(*broker.Outgoing) {}
	for name, c := range map[string]struct {
		a, b broker.Outgoing
		same bool
	}{
		"the same job again":  {job(same), job(func(o *broker.Outgoing) { o.Meta.Created = time.Now() }), true},
		"another id":          {job(same), job(func(o *broker.Outgoing) { o.Meta.ID = "i" }), false},
		"another key":         {job(same), job(func(o *broker.Outgoing) { o.Meta.Key = "l" }), false},
		"another type":        {job(same), job(func(o *broker.Outgoing) { o.Meta.Type = "u" }), false},
		"another group":       {job(same), job(func(o *broker.Outgoing) { o.Group = "h" }), false},
		"parts that run on":   {job(func(o *broker.Outgoing) { o.Meta.Type, o.Meta.Key = "tk", "" }), job(func(o *broker.Outgoing) { o.Meta.Type, o.Meta.Key = "t", "k" }), false},
		"no metadata":         {job(func(o *broker.Outgoing) { o.Meta = nil }), job(func(o *broker.Outgoing) { o.Meta = nil }), false},
		"no id":               {job(func(o *broker.Outgoing) { o.Meta.ID = "" }), job(func(o *broker.Outgoing) { o.Meta.ID = "" }), false},
		"a letter of the job": {job(same), job(func(o *broker.Outgoing) { o.Meta.Dead = &broker.Letter{Fence: 1} }), false},
		"two letters":         {job(func(o *broker.Outgoing) { o.Meta.Dead = &broker.Letter{Fence: 1} }), job(func(o *broker.Outgoing) { o.Meta.Dead = &broker.Letter{Fence: 1} }), false},
		"the caller's own":    {job(func(o *broker.Outgoing) { o.DedupID = "d" }), job(func(o *broker.Outgoing) { o.DedupID, o.Meta = "d", nil }), true},
	} {
		b, s := stubbed(t, fifoURL, nil, allApplied)
		if _, err := b.Send(t.Context(), []broker.Outgoing{c.a, c.b}); err != nil {
			t.Fatal(err)
		}
		es := s.calls[0].entries()
		x, y := es[0]["MessageDeduplicationId"], es[1]["MessageDeduplicationId"]
		if x == nil || y == nil || (x == y) != c.same {
			t.Errorf("%s: the ids are %v and %v", name, x, y)
		}
	}
}

func TestSendCountsAttributes(t *testing.T) {
	ten := map[string]string{}
	for _, n := range numbers(10) {
		ten[n] = n
	}
	nine := maps.Clone(ten)
	delete(nine, "0")
	for name, c := range map[string]struct {
		m    broker.Outgoing
		fits bool
	}{
		"ten":                     {broker.Outgoing{Body: []byte("a"), Attributes: ten}, true},
		"ten and metadata":        {broker.Outgoing{Body: []byte("a"), Attributes: ten, Meta: &broker.Meta{ID: "j"}}, false},
		"nine and metadata":       {broker.Outgoing{Body: []byte("a"), Attributes: nine, Meta: &broker.Meta{ID: "j"}}, true},
		"ten and a mark":          {broker.Outgoing{Attributes: ten}, false},
		"nine and a mark":         {broker.Outgoing{Attributes: nine}, true},
		"encoded beyond the size": {broker.Outgoing{Body: make([]byte, 1<<20-1000)}, false},
	} {
		b, _ := stubbed(t, stubURL, nil, allApplied)
		_, err := b.Send(t.Context(), []broker.Outgoing{c.m})
		if at := broker.ErrAt(err, 0); c.fits != (at == nil) || !c.fits && !errors.Is(at, broker.ErrTooLarge) {
			t.Errorf("%s was answered: %v", name, at)
		}
	}
}

// What stands behind a message that SQS never takes is itself fine: told to be too large, a letter
// would be cut down.
func TestBehindARefusalNothingIsCalledTooLarge(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ code, text string }{
		{"InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 262144 bytes."},
		{"InvalidMessageContents", ""},
	} {
		b, s := stubbed(t, fifoURL, nil, func(call stubCall) stubAnswer {
			return stubAnswer{out: object{"Failed": []object{entryFails("0", c.code, c.text)}}}
		})
		_, err := b.Send(t.Context(), []broker.Outgoing{grouped(sized(mib)), grouped(sized(mib))})
		at := broker.ErrAt(err, 1)
		if at == nil || errors.Is(at, broker.ErrTooLarge) || errors.Is(at, broker.ErrUnsupported) {
			t.Errorf("%s: the entry behind was answered: %v", c.code, at)
		}
		if len(s.calls) != 1 {
			t.Errorf("%d calls", len(s.calls))
		}
	}
}

// A queue of a region or a server that takes smaller requests than 1 MiB: each message by itself is
// fine.
func TestRequestThatIsTooLongIsHalved(t *testing.T) {
	for _, url := range []string{stubURL, fifoURL} {
		var order []string
		b, _ := stubbed(t, url, nil, func(call stubCall) stubAnswer {
			n := 0
			for _, e := range call.entries() {
				n += len(e["MessageBody"].(string))
			}
			if n > 256<<10 {
				return stubAnswer{code: "BatchRequestTooLong"}
			}
			for _, e := range call.entries() {
				order = append(order, e["Id"].(string))
			}
			return allApplied(call)
		})
		ms := []broker.Outgoing{grouped(sized(1<<20 + 1))}
		for range 5 {
			ms = append(ms, grouped(sized(200<<10)))
		}
		_, err := b.Send(t.Context(), ms)
		for i := range ms {
			if at := broker.ErrAt(err, i); (at != nil) != (i == 0) {
				t.Errorf("entry %d was answered: %v", i, at)
			}
		}
		if got := strings.Join(order, ""); got != "12345" {
			t.Errorf("they went in the order %s", got)
		}
	}
}
