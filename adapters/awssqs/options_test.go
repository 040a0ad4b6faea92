package awssqs_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceq/onceq/adapters/awssqs"
	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/internal/must"
)

// ofRegion is a client of that region.
func ofRegion(region string) *sqs.Client {
	return (&stub{}).client(func(o *sqs.Options) { o.Region = region })
}

func TestNewRefuses(t *testing.T) {
	c := newClient("http://localhost:1")
	real := (&stub{}).client()
	for name, x := range map[string]struct {
		client *sqs.Client
		url    string
		o      awssqs.Options
		says   string
	}{
		"no client":                       {nil, stubURL, awssqs.Options{}, "client is nil"},
		"a name":                          {c, "orders", awssqs.Options{}, "see Find"},
		"an ARN":                          {c, "arn:aws:sqs:us-east-1:1:orders", awssqs.Options{}, "see Find"},
		"no URL":                          {c, "", awssqs.Options{}, "see Find"},
		"no queue":                        {c, "https://sqs.us-east-1.amazonaws.com/", awssqs.Options{}, "without a queue's name"},
		"not a URL":                       {c, "http://a b/%zz", awssqs.Options{}, "queue URL"},
		"another region":                  {real, "https://sqs.eu-west-1.amazonaws.com/1/orders", awssqs.Options{}, "region eu-west-1"},
		"another region, China":           {ofRegion("cn-north-1"), "https://sqs.cn-northwest-1.amazonaws.com.cn/1/orders", awssqs.Options{}, "region cn-northwest-1"},
		"another region, IPv6":            {real, "https://sqs.eu-west-1.api.aws/1/orders", awssqs.Options{}, "region eu-west-1"},
		"another region, China with IPv6": {ofRegion("cn-north-1"), "https://sqs.cn-northwest-1.api.amazonwebservices.com.cn/1/orders", awssqs.Options{}, "region cn-northwest-1"},
		"another region, FIPS":            {real, "https://sqs-fips.us-west-2.amazonaws.com/1/orders", awssqs.Options{}, "region us-west-2"},
		"another region, FIPS and IPv6":   {real, "https://sqs-fips.us-west-2.api.aws/1/orders", awssqs.Options{}, "region us-west-2"},
		"another region, of old":          {real, "https://eu-west-1.queue.amazonaws.com/1/orders", awssqs.Options{}, "region eu-west-1"},
		"another region, China of old":    {real, "https://cn-north-1.queue.amazonaws.com.cn/1/orders", awssqs.Options{}, "region cn-north-1"},
		"another region, the oldest":      {ofRegion("eu-west-1"), "https://queue.amazonaws.com/1/orders", awssqs.Options{}, "region us-east-1"},
		"another region, in capitals":     {real, "https://SQS.eu-west-1.AmazonAWS.com:443/1/orders", awssqs.Options{}, "region eu-west-1"},
		"another region than FIPS":        {ofRegion("fips-us-east-1"), "https://sqs-fips.us-west-2.amazonaws.com/1/orders", awssqs.Options{}, "region us-west-2"},
		"short Visibility":                {c, stubURL, awssqs.Options{Visibility: time.Millisecond}, "Options.Visibility"},
		"negative Visibility":             {c, stubURL, awssqs.Options{Visibility: -time.Second}, "Options.Visibility"},
		"long Visibility":                 {c, stubURL, awssqs.Options{Visibility: 12*time.Hour + time.Second}, "Options.Visibility"},
		"odd Visibility":                  {c, stubURL, awssqs.Options{Visibility: 1500 * time.Millisecond}, "whole seconds"},
		"short LongPoll":                  {c, stubURL, awssqs.Options{LongPoll: time.Millisecond}, "Options.LongPoll"},
		"negative LongPoll":               {c, stubURL, awssqs.Options{LongPoll: -time.Second}, "Options.LongPoll"},
		"long LongPoll":                   {c, stubURL, awssqs.Options{LongPoll: 21 * time.Second}, "Options.LongPoll"},
		"odd LongPoll":                    {c, stubURL, awssqs.Options{LongPoll: 1500 * time.Millisecond}, "whole seconds"},
		"long ReceiveGrace":               {c, stubURL, awssqs.Options{ReceiveGrace: 22 * time.Second}, "Options.ReceiveGrace"},
		"bare ReceiveGrace":               {c, stubURL, awssqs.Options{ReceiveGrace: 3}, "Options.ReceiveGrace: 3ns is below 1ms; is its unit missing?"},
		"bare CallTimeout":                {c, stubURL, awssqs.Options{CallTimeout: 10}, "Options.CallTimeout: 10ns is below 1ms; is its unit missing?"},
		"negative CallTimeout":            {c, stubURL, awssqs.Options{CallTimeout: -1}, "Options.CallTimeout"},
		"long CallTimeout":                {c, stubURL, awssqs.Options{CallTimeout: time.Hour}, "Options.CallTimeout"},
		"the longest Visibility":          {c, stubURL, awssqs.Options{Visibility: math.MaxInt64}, "Options.Visibility"},
		"the longest LongPoll":            {c, stubURL, awssqs.Options{LongPoll: math.MaxInt64}, "Options.LongPoll"},
		"the longest ReceiveGrace":        {c, stubURL, awssqs.Options{ReceiveGrace: math.MaxInt64}, "Options.ReceiveGrace"},
		"the longest CallTimeout":         {c, stubURL, awssqs.Options{CallTimeout: math.MaxInt64}, "Options.CallTimeout"},
		"an envelope nobody knows":        {c, stubURL, awssqs.Options{Unwrap: 32}, "Options.Unwrap: 0x20"},
		"what is within nothing":          {c, stubURL, awssqs.Options{Unwrap: awssqs.S3InSNS &^ awssqs.SNS}, "Options.Unwrap: 0x10"},
		"trust without SNS":               {c, stubURL, awssqs.Options{Unwrap: awssqs.S3, TrustTopics: []string{theTopic}}, "Options.TrustTopics"},
		"a topic's name":                  {c, stubURL, awssqs.Options{Unwrap: awssqs.SNS, TrustTopics: []string{theTopic, "orders"}}, `Options.TrustTopics: "orders"`},
		"a queue as a topic":              {c, stubURL, awssqs.Options{Unwrap: awssqs.SNS, TrustTopics: []string{"arn:aws:sqs:us-east-1:1:orders"}}, "Options.TrustTopics"},
		"all topics":                      {c, stubURL, awssqs.Options{Unwrap: awssqs.SNS, TrustTopics: []string{"arn:aws:sns:us-east-1:1:*"}}, "without wildcards"},
	} {
		b, err := awssqs.New(x.client, x.url, &x.o)
		if b != nil || err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s was answered %v; want one that says %q", name, err, x.says)
		}
	}
}

// A client whose timeout ends each poll is a mistake that shows only while the queue is empty.
func TestNewRefusesTimeouts(t *testing.T) {
	const tooShort = 8 * time.Second
	sdk := awshttp.NewBuildableClient()
	headers := http.DefaultTransport.(*http.Transport).Clone()
	headers.ResponseHeaderTimeout = tooShort
	for name, hc := range map[string]sqs.HTTPClient{
		"timeout":                      sdk.WithTimeout(tooShort),
		"read timeout":                 sdk.WithReadTimeout(tooShort),
		"ResponseHeaderTimeout":        sdk.WithTransportOptions(func(tr *http.Transport) { tr.ResponseHeaderTimeout = tooShort }),
		"Timeout":                      &http.Client{Timeout: tooShort},
		"Timeout, with a transport":    &http.Client{Timeout: tooShort, Transport: http.DefaultTransport},
		"ResponseHeaderTimeout, plain": &http.Client{Transport: headers},
	} {
		c := newClient("http://localhost:1", func(o *sqs.Options) { o.HTTPClient = hc })
		field, _, _ := strings.Cut(name, ",")
		if _, err := awssqs.New(c, stubURL, nil); err == nil || !strings.Contains(err.Error(), "HTTP client's "+field+",") {
			t.Errorf("a %s of %v was answered: %v", name, tooShort, err)
		}
		if _, err := awssqs.New(c, stubURL, &awssqs.Options{LongPoll: tooShort - time.Second}); err != nil {
			t.Errorf("a %s of %v with a shorter poll was answered: %v", name, tooShort, err)
		}
	}
}

func TestNewTakes(t *testing.T) {
	for _, url := range []string{
		stubURL, "http://127.0.0.1:4566/000000000000/orders", "http://sqs.us-east-1.localhost:4566/0/orders",
		"https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/1/orders", "https://queue.amazonaws.com/1/orders",
		"https://sqs.us-east-1.api.aws/1/orders", "https://sqs-fips.us-east-1.amazonaws.com/1/orders", "https://us-east-1.queue.amazonaws.com/1/orders",
		"https://vpce-1-eu-west-1a.sqs.eu-west-1.vpce.amazonaws.com/1/orders", "https://bucket.eu-west-1.amazonaws.com/1/orders", "https://sqs.eu-west-1.example.com/1/orders",
		"https://my.sqs.eu-west-1.queue.amazonaws.com/1/orders",
		"cn-north-1@https://sqs.cn-north-1.amazonaws.com.cn/1/orders", "cn-north-1@https://sqs.cn-north-1.api.amazonwebservices.com.cn/1/orders",
		"fips-us-west-2@https://sqs-fips.us-west-2.amazonaws.com/1/orders", "us-gov-west-1-fips@https://sqs.us-gov-west-1.amazonaws.com/1/orders",
		"@https://sqs.eu-west-1.amazonaws.com/1/orders",
	} {
		c := (&stub{}).client()
		if region, url2, ok := strings.Cut(url, "@"); ok {
			c, url = ofRegion(region), url2
		}
		if _, err := awssqs.New(c, url, &awssqs.Options{
			Visibility: 12 * time.Hour, LongPoll: 20 * time.Second, ReceiveGrace: 21 * time.Second, CallTimeout: 5 * time.Minute, Unwrap: awssqs.AllEnvelopes,
		}); err != nil {
			t.Errorf("%s was answered: %v", url, err)
		}
	}
	// Behind an endpoint of one's own, nobody knows which region serves what.
	if _, err := awssqs.New(newClient("http://localhost:1"), "https://sqs.eu-west-1.amazonaws.com/1/orders", nil); err != nil {
		t.Errorf("with an endpoint of one's own it was answered: %v", err)
	}
	b := makeBroker(t, (&stub{}).client(), fifoURL, &awssqs.Options{LongPoll: 20 * time.Second})
	if b.Name() != "orders.fifo" || b.URL() != fifoURL {
		t.Errorf("it is %s at %s", b.Name(), b.URL())
	}
	sameLimits(t, b.Limits(), membroker.SQSFIFO, 20*time.Second)
	sameLimits(t, makeBroker(t, (&stub{}).client(), stubURL, nil).Limits(), membroker.SQSStandard, 8*time.Second)
}

// sameLimits compares with the memory queue that stands for the service in tests: what one refuses,
// the other must.
func sameLimits(t *testing.T, got broker.Limits, p membroker.Preset, wait time.Duration) {
	t.Helper()
	m := must.Get(membroker.New(&membroker.Options{Preset: p}))
	want := m.Limits()
	want.MaxWait, want.Durable = wait, true
	// The memory queue knows when a delivery began; here it may have been a whole poll before its
	// answer.
	used := want.MaxTotal - 30*time.Second
	want.MaxTotal, want.MaxHold, want.MaxNack = used, used, used
	if got != want {
		t.Errorf("Limits are %+v, want %+v", got, want)
	}
}

func TestHasARN(t *testing.T) {
	for _, c := range []struct {
		url, region, arn string
		want             bool
	}{
		{stubURL, "us-east-1", "arn:aws:sqs:us-east-1:123456789012:orders", true},
		{stubURL, "us-east-1", "arn:aws:sqs:us-east-1:123456789012:orders.fifo", false},
		{stubURL, "us-east-1", "arn:aws:sqs:us-east-1:123456789013:orders", false},
		{stubURL, "us-east-1", "arn:aws:sqs:us-east-2:123456789012:orders", false},
		{stubURL, "us-east-1", "arn:aws:sns:us-east-1:123456789012:orders", false},
		{stubURL, "us-east-1", "", false},
		{"https://sqs-fips.us-east-1.amazonaws.com/123456789012/orders", "fips-us-east-1", "arn:aws:sqs:us-east-1:123456789012:orders", true},
		{"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders", "cn-north-1", "arn:aws-cn:sqs:cn-north-1:123456789012:orders", true},
		// What is not told is not compared.
		{"https://sqs.us-east-1.amazonaws.com/1/orders", "us-east-1", "arn:aws:sqs:us-east-1:123456789012:orders", true},
		{"http://localhost:9324/queue/orders", "us-east-1", "arn:aws:sqs:us-east-1:000000000000:orders", true},
		{"http://localhost:9324/queue/orders", "", "arn:aws:sqs:elsewhere:000000000000:orders", true},
	} {
		if got := makeBroker(t, ofRegion(c.region), c.url, nil).HasARN(c.arn); got != c.want {
			t.Errorf("%s of region %q is %s: %v", c.url, c.region, c.arn, got)
		}
	}
}
