//go:build unix

package localstack_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/localstack"
)

// makeTable makes a table of one key.
func makeTable(t *testing.T, c *dynamodb.Client, name string) {
	t.Helper()
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("k"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("k"), AttributeType: types.ScalarAttributeTypeS}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDynamoDB(t *testing.T) {
	s := localstack.DynamoDB(t)
	c := s.Client(t)
	table := s.TableName(t, "records")
	makeTable(t, c, table)
	put := &dynamodb.PutItemInput{
		TableName: &table, ConditionExpression: new("attribute_not_exists(k)"),
		Item: map[string]types.AttributeValue{"k": &types.AttributeValueMemberS{Value: "a"}},
	}
	if _, err := c.PutItem(t.Context(), put); err != nil {
		t.Error(err)
	}
	_, err := c.PutItem(t.Context(), put)
	if failed := (*types.ConditionalCheckFailedException)(nil); !errors.As(err, &failed) {
		t.Errorf("put twice: %v", err)
	}
	if want := strings.ReplaceAll(strings.ToLower(s.Version), " ", "-"); s.Kind == "" || !strings.HasPrefix(want, s.Kind) {
		t.Errorf("%s is of the kind %q", s.Version, s.Kind)
	}
}

// TestTablesAreDeleted: two tables of one name are two, and both go with their test, also when that
// deleted one itself, or made none.
func TestTablesAreDeleted(t *testing.T) {
	s := localstack.DynamoDB(t)
	c := s.Client(t)
	var made []string
	t.Run("a test with a very long name: ÄÖÜ ' "+strings.Repeat("and more than a table's name has room for", 6), func(t *testing.T) {
		for _, name := range []string{"a.b-c", "a.b-c", "deleted", strings.Repeat("n", 150)} {
			made = append(made, s.TableName(t, name))
			makeTable(t, c, made[len(made)-1])
		}
		if _, err := c.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &made[2]}); err != nil {
			t.Fatal(err)
		}
		made = append(made, s.TableName(t, "never.made"))
	})
	if slices.Sort(made); len(slices.Compact(slices.Clone(made))) != 5 {
		t.Errorf("two tables are one: %q", made)
	}
	for _, table := range made {
		_, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		if gone := (*types.ResourceNotFoundException)(nil); !errors.As(err, &gone) {
			t.Errorf("%s is still there: %v", table, err)
		}
	}
}

// TestDynamoDBInDocker runs an image that is made here, of the program that stands in for one:
// nothing can be pulled everywhere, and what counts is what the harness does with it.
func TestDynamoDBInDocker(t *testing.T) {
	t.Parallel()
	docker := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := docker("version"); err != nil {
		t.Skipf("no Docker here: %v %s", err, out)
	}
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "main.go"), []byte(standIn), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(files, "java"), filepath.Join(files, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := filepath.Join(files, "image.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", files, "-cf", archive, "java").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	image := "onceq-test-dynamodb:" + strings.ToLower(rand.Text())
	if out, err := docker("import", "--change", `ENTRYPOINT ["/java"]`, archive, image); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("docker", "rmi", "--force", image).Run() })
	dir := tempDir(t)
	run := append([]string{runner(t)}, dynamoDB.own(t)...)
	// It answers, and cannot do what a DynamoDB can: the start is given up, with its own words, and
	// the next way is taken.
	code, text := start(t, dir, []string{ask, noJava, "ONCEQ_DYNAMODB_IMAGE=" + image}, run...).end(t)
	if code != 0 || !strings.Contains(text, "the first CreateTable: ") || !strings.Contains(text, "got -jar DynamoDBLocal.jar -inMemory -disableTelemetry") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	last(t, text, "backend dynamodb: none (Docker: ", ", 0 of 1 tests")
	gone(t, dir)
	if out, err := docker("ps", "--all", "--quiet", "--filter", "ancestor="+image); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("left behind: %s %v", out, err)
	}
	// an image that is not there and cannot be pulled
	code, text = start(t, dir, []string{ask, noJava, "ONCEQ_DYNAMODB_IMAGE=127.0.0.1:1/none:1"}, run...).end(t)
	if code != 0 || !strings.Contains(text, "Docker: pulling 127.0.0.1:1/none:1: ") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	gone(t, dir)
}

// standIn lists no tables and refuses to make one: it says what it was started with.
const standIn = `package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "Jetty(12)")
		switch {
		case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".ListTables"):
			fmt.Fprint(w, "{\"TableNames\":[]}")
		default:
			w.WriteHeader(400)
			fmt.Fprintf(w, "{\"__type\":\"com.amazonaws.dynamodb.v20120810#ValidationException\",\"message\":\"got %s\"}", strings.Join(os.Args[1:], " "))
		}
	})
	if err := http.ListenAndServe(":8000", nil); err != nil {
		panic(err)
	}
}
`
