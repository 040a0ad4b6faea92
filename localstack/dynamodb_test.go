//go:build unix

package localstack_test

import (
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// TestAskDynamoDB is what the tests below run in other processes: it asks for a server and says
// where it is. Where ONCEQ_TEST_ASK is the path of a file, it has the server until the test that
// runs this one is done.
func TestAskDynamoDB(t *testing.T) {
	what := os.Getenv("ONCEQ_TEST_ASK")
	if what == "" {
		t.Skip("run by other tests, in processes of their own")
	}
	s := localstack.DynamoDB(t)
	makeTable(t, s.Client(t), s.TableName(t, "asked"))
	os.Stdout.WriteString("asked " + s.URL + " " + s.Version + "\n")
	if filepath.IsAbs(what) {
		<-t.Context().Done()
	}
}

// ownDynamoDB is a command that runs TestAskDynamoDB once.
func ownDynamoDB(t *testing.T) []string {
	t.Helper()
	return []string{own(t)[0], "-test.run=^TestAskDynamoDB$", "-test.v"}
}

const noJava = "ONCEQ_JAVA=/nonexistent"

func TestNoDynamoDB(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, require string
		code          int
		test          string
	}{
		{"skipped", "", 0, "--- SKIP: TestAskDynamoDB"},
		{"skipped when others are required", "sqs", 0, "--- SKIP: TestAskDynamoDB"},
		{"required", "all", 1, "--- FAIL: TestAskDynamoDB"},
		{"required by name", "postgres, dynamodb", 1, "--- FAIL: TestAskDynamoDB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			env := []string{ask, noDocker, noJava, "ONCEQ_BACKENDS=" + c.require}
			code, text := start(t, dir, env, append([]string{runner(t)}, ownDynamoDB(t)...)...).end(t)
			if code != c.code || !strings.Contains(text, c.test) {
				t.Errorf("exit code %d, want %d with %q:\n%s", code, c.code, c.test, text)
			}
			text = strings.ReplaceAll(text, "\ntestrun: exit status 1", "")
			last(t, text, "backend dynamodb: none (Docker: ", "; host process: no Java 17 or later (no /nonexistent)), 0 of 1 tests")
			gone(t, dir)
		})
	}
}

func TestDynamoDBEnvironment(t *testing.T) {
	t.Parallel()
	s := localstack.DynamoDB(t)
	dir := tempDir(t)
	run := append([]string{runner(t)}, ownDynamoDB(t)...)
	code, text := start(t, dir, []string{ask, noDocker, noJava, "ONCEQ_DYNAMODB_URL=" + s.URL}, run...).end(t)
	if code != 0 || !strings.Contains(text, "asked "+s.URL+" ") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	name := s.Version
	if s.Kind == "dynamodb-local" {
		name = "DynamoDB Local" // it does not tell its version
	}
	last(t, text, "backend dynamodb: "+name+" (environment), 1 test", "")
	// somebody named it, so its tests are not skipped, required or not
	for _, bad := range []string{"http://127.0.0.1:1", "127.0.0.1:8000"} {
		code, text = start(t, dir, []string{ask, "ONCEQ_DYNAMODB_URL=" + bad}, run...).end(t)
		if code != 1 || !strings.Contains(text, "--- FAIL") {
			t.Errorf("exit code %d for %s:\n%s", code, bad, text)
		}
		last(t, text, "backend dynamodb: none (ONCEQ_DYNAMODB_URL: ", ", 0 of 1 tests")
	}
}

// TestDynamoDBLocal: it comes up as a process of this machine, on the loopback address alone, two
// processes of a run share it, and it leaves nothing behind, killed or not.
func TestDynamoDBLocal(t *testing.T) {
	t.Parallel()
	if s := localstack.DynamoDB(t); s.Kind != "dynamodb-local" {
		t.Skip("no DynamoDB Local here, see above")
	}
	dir := tempDir(t)
	one := strings.Join(ownDynamoDB(t), " ")
	code, text := start(t, dir, []string{ask, noDocker}, runner(t), "sh", "-c", one+" && cd / && "+one).end(t)
	if code != 0 {
		t.Fatal(text)
	}
	const line = "backend dynamodb: DynamoDB Local 3.1.0 (host process), 2 tests"
	if !strings.Contains(text, line) {
		t.Skip("DynamoDB Local does not run as a process of this machine:\n" + text)
	}
	last(t, text, line, "")
	if urls := askedServer.FindAllStringSubmatch(text, -1); len(urls) != 2 || urls[0][1] != urls[1][1] {
		t.Errorf("two processes did not share one server:\n%s", text)
	}
	gone(t, dir)

	wait, _ := askWait(t)
	p := start(t, dir, []string{wait, noDocker}, ownDynamoDB(t)...)
	u, err := url.Parse(p.askedURL(t))
	if err != nil {
		t.Fatal(err)
	}
	onLoopbackOnly(t, u)
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	gone(t, dir)
	if c, err := net.Dial("tcp", u.Host); err == nil {
		c.Close()
		t.Errorf("it still answers at %s", u.Host)
	}
	if processWith(dir) {
		t.Error("a process that names " + dir + " is left")
	}
}

// onLoopbackOnly fails the test where the server can be reached at another of this machine's
// addresses.
func onLoopbackOnly(t *testing.T, u *url.URL) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if c, err := net.Dial("tcp", net.JoinHostPort(n.IP.String(), u.Port())); err == nil {
			c.Close()
			t.Errorf("it answers at %s, where others may come", n.IP)
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
	run := append([]string{runner(t)}, ownDynamoDB(t)...)
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
