package localstack

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/onceq/onceq/internal/rundir"
)

// Address finds or starts a back end, "postgres", "postgres_durable" (one that waits for the
// disk), "sqs", "dynamodb", "pubsub" or "firestore", for a program that is not a test, such as a
// demo: it is looked for as the package comment says, and ends with the process. The error says why
// there is none, and a stand-in such as sqsfake is none. url is "host:port" for "pubsub" and
// "firestore". version is the server's, such as "DynamoDB Local 3.1.0".
func Address(name string) (url, version string, err error) {
	base, variant, _ := strings.Cut(name, "_")
	b := backends[base]
	if b == nil || variant != "" && name != rundir.Instance("postgres", durable) {
		return "", "", fmt.Errorf("localstack: there is no back end %q", name)
	}
	e, err := b.asked().Find(variant, os.Getenv(rundir.Env))
	if why := cmp.Or(e.Err, e.StandIn); err == nil && why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return "", "", fmt.Errorf("backend %s: none (%w)", name, err)
	}
	return e.URL, e.Version, nil
}
