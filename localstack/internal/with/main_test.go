package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/onceq/onceq/internal/rundir"
	"github.com/onceq/onceq/localstack"
	"github.com/onceq/onceq/sqsfake"
)

// TestMain plays the program, and the command that it runs.
func TestMain(m *testing.M) {
	switch os.Getenv("WITH_TEST") {
	case "with":
		_ = os.Setenv("WITH_TEST", "command")
		main()
	case "command":
		fmt.Printf("%s %s\n", os.Getenv("ONCEQ_DYNAMODB_URL"), os.Args[1])
		if os.Args[1] == "fail" {
			os.Exit(3)
		}
	default:
		os.Exit(m.Run())
	}
}

// with runs the program outside the run of the tests.
func with(t *testing.T, env string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, rundir.Env+"=") }), "WITH_TEST=with", env)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestNoBackend(t *testing.T) {
	fake := sqsfake.Start(t, nil)
	for _, c := range []struct {
		env  string
		args []string
		want string
	}{
		{"X=", []string{"dynamodb"}, "want a back end and a command"},
		{"X=", []string{"mongo", os.Args[0], "a"}, `there is no back end "mongo"`},
		{"ONCEQ_DYNAMODB_URL=http://127.0.0.1:1", []string{"dynamodb", os.Args[0], "a"}, "backend dynamodb: none (ONCEQ_DYNAMODB_URL: "},
		{"ONCEQ_SQS_URL=" + fake.URL, []string{"sqs", os.Args[0], "a"}, "backend sqs: none (ONCEQ_SQS_URL: sqsfake)"},
	} {
		if text, err := with(t, c.env, c.args...); err == nil || !strings.Contains(text, c.want) {
			t.Errorf("with %q: %v, %s; want %s", c.args, err, text, c.want)
		}
	}
}

func TestCommand(t *testing.T) {
	url := localstack.DynamoDB(t).URL
	text, err := with(t, "ONCEQ_DYNAMODB_URL="+url, "dynamodb", os.Args[0], "work")
	if err != nil || !strings.Contains(text, url+" work\n") || !strings.Contains(text, "backend dynamodb: ") {
		t.Errorf("%v: %s", err, text)
	}
	if text, err = with(t, "ONCEQ_DYNAMODB_URL="+url, "dynamodb", os.Args[0], "fail"); err == nil || !strings.Contains(text, url+" fail\n") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestForARun: without a command, it keeps in the run where the back end is.
func TestForARun(t *testing.T) {
	url := localstack.DynamoDB(t).URL
	r := rundir.Open(t.TempDir())
	if text, err := with(t, "ONCEQ_DYNAMODB_URL="+url, "dynamodb"); err == nil {
		t.Errorf("without a run, it has nothing to do: %s", text)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "dynamodb")
	cmd.Env = append(os.Environ(), "WITH_TEST=with", "ONCEQ_DYNAMODB_URL="+url, rundir.Env+"="+r.Dir())
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if e, ok, err := r.Load("dynamodb"); e.URL != url || !ok || err != nil {
		t.Errorf("the run has %+v, %v, %v", e, ok, err)
	}
}
