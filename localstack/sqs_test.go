//go:build unix

package localstack_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceq/onceq/localstack"
)

func TestSQS(t *testing.T) {
	s := localstack.SQS(t)
	c := s.Client(t)
	queue := s.Queue(t, "orders", map[string]string{"VisibilityTimeout": "7"})
	if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &queue, MessageBody: new("a")}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue, WaitTimeSeconds: 5})
	if err != nil || len(got.Messages) != 1 || *got.Messages[0].Body != "a" {
		t.Errorf("received %+v, %v", got, err)
	}
	out, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil || out.Attributes["VisibilityTimeout"] != "7" || out.Attributes["QueueArn"] != s.ARN(t, queue) {
		t.Errorf("its attributes are %v, %v", out, err)
	}
	if version := strings.ToLower(s.Version); s.Kind == "" || !strings.HasPrefix(version, s.Kind) {
		t.Errorf("%s is of the kind %q", s.Version, s.Kind)
	}
}

// TestQueuesAreDeleted: two queues of one name are two, and both go with their test, also when that
// deleted one itself.
func TestQueuesAreDeleted(t *testing.T) {
	s := localstack.SQS(t)
	c := s.Client(t)
	var made []string
	t.Run("a test with a very long name: ÄÖÜ ' and more than a queue's name has room for", func(t *testing.T) {
		made = append(made, s.Queue(t, "a.fifo", nil), s.Queue(t, "a.fifo", nil), s.Queue(t, "deleted", nil))
		made = append(made, s.Queue(t, strings.Repeat("n", 55)+".fifo", nil), s.Queue(t, strings.Repeat("n", 60), nil))
		if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &made[2]}); err != nil {
			t.Fatal(err)
		}
	})
	if slices.Sort(made); len(slices.Compact(slices.Clone(made))) != 5 {
		t.Errorf("two queues are one: %q", made)
	}
	for _, queue := range made {
		_, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue})
		if gone := (*types.QueueDoesNotExist)(nil); !errors.As(err, &gone) {
			t.Errorf("%s is still there: %v", queue, err)
		}
	}
}

var askedServer = regexp.MustCompile(`(?m)^asked (\S+) (.*)`)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	one := strings.Join(sqsServer.own(t), " ")
	for _, c := range []struct {
		name, require string
		code          int
		says, line    string
	}{
		{"taken", "", 0, "backend sqs: no real one (Docker: ", "backend sqs: sqsfake (embedded), 2 tests"},
		{"not where it is required", "all", 1, "and ONCEQ_BACKENDS=all requires it", "; embedded: sqsfake), 0 of 2 tests"},
		{"not where it is required by name", "sqs", 1, "host process: no Python 3.10 or later with venv (no /nonexistent)", "; embedded: sqsfake), 0 of 2 tests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			env := []string{ask, noDocker, noPython, "ONCEQ_BACKENDS=" + c.require}
			code, text := start(t, dir, env, runner(t), "sh", "-c", one+"; cd /; "+one).end(t)
			if code != c.code || !strings.Contains(text, c.says) || !strings.Contains(text, c.line) {
				t.Errorf("exit code %d, want %d with %q and %q:\n%s", code, c.code, c.says, c.line, text)
			}
			urls := askedServer.FindAllStringSubmatch(text, -1)
			if c.code == 0 && (len(urls) != 2 || urls[0][1] != urls[1][1]) {
				t.Errorf("two processes did not share one server:\n%s", text)
			}
			gone(t, dir)
		})
	}
}

// TestLocalStack: it comes up as a process of this machine, on the loopback address alone, and
// leaves nothing behind, killed or not.
func TestLocalStack(t *testing.T) {
	t.Parallel()
	if s := localstack.SQS(t); s.Kind != "localstack" {
		t.Skip("no LocalStack here, see above")
	}
	dir := tempDir(t)
	code, text := start(t, dir, []string{ask, noDocker}, append([]string{runner(t)}, sqsServer.own(t)...)...).end(t)
	if code != 0 {
		t.Fatal(text)
	}
	if !strings.Contains(text, "backend sqs: LocalStack 4.1") {
		t.Skip("LocalStack does not run as a process of this machine:\n" + text)
	}
	last(t, text, "backend sqs: LocalStack 4.1", " (host process), 1 test")
	gone(t, dir)

	wait, _ := askWait(t)
	p := start(t, dir, []string{wait, noDocker}, own(t)[0], "-test.run=^TestHoldSQS$", "-test.v")
	host := p.askedHost(t)
	// It keeps to the folder that it is given, also where this machine is a container.
	if in, err := filepath.Glob(filepath.Join(dir, "*", "usr", "lib", "localstack")); err != nil || len(in) != 1 {
		t.Errorf("its files lie in %q (%v), want one folder in %s", in, err, dir)
	}
	p.killed(t, host, dir)
}

// TestHoldSQS asks for a server and has it until the test that runs this one is done.
func TestHoldSQS(t *testing.T) {
	if !filepath.IsAbs(os.Getenv("ONCEQ_TEST_ASK")) {
		t.Skip("run by other tests, in processes of their own")
	}
	s := localstack.SQS(t)
	os.Stdout.WriteString("asked " + s.URL + " " + s.Version + "\n")
	<-t.Context().Done()
}

// TestSQSInDocker runs an image that is made here: a static program of ours, as nothing can be
// pulled everywhere.
func TestSQSInDocker(t *testing.T) {
	t.Parallel()
	docker := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := docker("version"); err != nil {
		t.Skipf("no Docker here: %v %s", err, out)
	}
	files := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(files, "sqsfake"), "github.com/onceq/onceq/cmd/sqsfake")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := filepath.Join(files, "image.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", files, "-cf", archive, "sqsfake").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	image := "onceq-test-sqs:" + strings.ToLower(rand.Text())
	if out, err := docker("import", "--change", `ENTRYPOINT ["/sqsfake","-addr","0.0.0.0:4566"]`, archive, image); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command("docker", "rmi", "--force", image).Run() })

	networks := func() string {
		out, err := docker("network", "ls", "--quiet")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	before := networks()
	dir := tempDir(t)
	run := append([]string{runner(t)}, sqsServer.own(t)...)
	code, text := start(t, dir, []string{ask, noPython, "ONCEQ_SQS_IMAGE=" + image}, run...).end(t)
	if code != 0 {
		t.Error(text)
	}
	last(t, text, "backend sqs: sqsfake (Docker), 1 test", "")
	gone(t, dir)
	if out, err := docker("ps", "--quiet", "--filter", "ancestor="+image); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("left behind: %s %v", out, err)
	}
	if after := networks(); after != before {
		t.Errorf("the networks were\n%s and are\n%s", before, after)
	}
	// an image that is not there and cannot be pulled: the next way is taken
	code, text = start(t, dir, []string{ask, noPython, "ONCEQ_SQS_IMAGE=127.0.0.1:1/none:1"}, run...).end(t)
	if code != 0 || !strings.Contains(text, "Docker: pulling 127.0.0.1:1/none:1: ") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	last(t, text, "backend sqs: sqsfake (embedded), 1 test", "")
	gone(t, dir)
}
