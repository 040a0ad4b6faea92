package awssqs

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// checkURL tells what the URL names. A queue of another region than the client's would be looked
// for where it is not: the SDK sends to its own endpoint, whatever the URL says.
func checkURL(queueURL string, o sqs.Options) (arn, error) {
	u, err := url.Parse(queueURL)
	if err != nil {
		return arn{}, fmt.Errorf("awssqs: the queue URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return arn{}, fmt.Errorf("awssqs: the queue URL %q is not of the form https://sqs.REGION.amazonaws.com/ACCOUNT/NAME; for a name, see Find", queueURL)
	}
	at := arn{region: regionOf(o), name: path.Base(u.Path)}
	if at.name == "." || at.name == "/" {
		return arn{}, fmt.Errorf("awssqs: the queue URL %q ends without a queue's name", queueURL)
	}
	if account := path.Base(path.Dir(u.Path)); len(account) == accountDigits && strings.Trim(account, "0123456789") == "" {
		at.account = account
	}
	if region := regionIn(u.Hostname()); region != "" && o.BaseEndpoint == nil && at.region != "" && region != at.region {
		return arn{}, fmt.Errorf("awssqs: the queue URL %q is of region %s, and the client of %s", queueURL, region, o.Region)
	}
	return at, nil
}

const accountDigits = 12

// regionOf is the client's region. The SDK also takes names such as fips-us-east-1, as the same
// region.
func regionOf(o sqs.Options) string {
	return strings.TrimSuffix(strings.TrimPrefix(o.Region, "fips-"), "-fips")
}

// regionIn is the region that a public endpoint of SQS serves; empty where the host is another one,
// such as a VPC endpoint, of which AWS makes names that nobody can foresee.
func regionIn(host string) string {
	host = strings.ToLower(host)
	for _, domain := range [...]string{".api.aws", ".api.amazonwebservices.com.cn", ".amazonaws.com.cn", ".amazonaws.com"} {
		rest, ok := strings.CutSuffix(host, domain)
		if !ok {
			continue
		}
		if rest == "queue" {
			return "us-east-1"
		}
		for _, service := range [...]string{"sqs.", "sqs-fips."} {
			if region, ok := strings.CutPrefix(rest, service); ok {
				return one(region)
			}
		}
		region, _ := strings.CutSuffix(rest, ".queue")
		if region != rest {
			return one(region)
		}
		return ""
	}
	return ""
}

// one is s if it is one label.
func one(s string) string {
	if strings.Contains(s, ".") {
		return ""
	}
	return s
}

// HasARN tells whether the queue is the one that the ARN names, as far as its URL and the client's
// region tell. It does no I/O.
func (b *Broker) HasARN(queue string) bool {
	if b == nil {
		return false
	}
	a, err := parseARN(queue)
	same := func(have, want string) bool { return have == "" || have == want }
	return err == nil && a.name == b.at.name && same(b.at.account, a.account) && same(b.at.region, a.region)
}
