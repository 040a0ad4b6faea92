//go:build unix

package localstack_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/onceq/onceq/localstack"
)

// This file owns what is alike of the servers that tests find by an address: that one is asked for,
// named by the environment, missing, and started as a process. What is one's own is in its file.

// server is a back end as the tests of this file see it.
type server struct {
	name string // in reports, and for ONCEQ_BACKENDS
	test string // asks for it, in processes of their own
	env  string // names one
	bad  []string
	// kind is that of the one that we start. It does not tell its version: title is its name, and
	// began how a report on one begins that runs as a process.
	kind, title, began string
	without            string   // keeps us from starting one as a process
	why                string   // what a report says then
	asked, notAsked    []string // what ONCEQ_BACKENDS says where it is required, and where it is not
	// find finds it; use makes something there, too.
	find func(t *testing.T, use bool) (addr, kind, version string)
}

var servers = []*server{dynamoDB, sqsServer, pubSub, firestore}

var dynamoDB = &server{
	name: "dynamodb", test: "TestAskDynamoDB", env: "ONCEQ_DYNAMODB_URL", bad: []string{"http://127.0.0.1:1", "127.0.0.1:8000"},
	kind: "dynamodb-local", title: "DynamoDB Local", began: "DynamoDB Local 3.1.0",
	without: noJava, why: "; host process: no Java 17 or later (no /nonexistent)",
	asked: []string{"all", "postgres, dynamodb"}, notAsked: []string{"", "sqs"},
	find: func(t *testing.T, use bool) (addr, kind, version string) {
		s := localstack.DynamoDB(t)
		if use {
			makeTable(t, s.Client(t), s.TableName(t, "asked"))
		}
		return s.URL, s.Kind, s.Version
	},
}

var sqsServer = &server{
	name: "sqs", test: "TestAskSQS", env: "ONCEQ_SQS_URL", bad: []string{"http://127.0.0.1:1", "127.0.0.1:4566"}, without: noPython,
	find: func(t *testing.T, use bool) (addr, kind, version string) {
		s := localstack.SQS(t)
		if use {
			s.Queue(t, "asked", nil)
		}
		return s.URL, s.Kind, s.Version
	},
}

// "all" does not ask for Pub/Sub, its own name does.
var pubSub = &server{
	name: "pubsub", test: "TestAskPubSub", env: "PUBSUB_EMULATOR_HOST", bad: []string{"127.0.0.1:1", "http://ADDR"},
	kind: "emulator", title: "Pub/Sub emulator", began: "Pub/Sub emulator 0.",
	without: noGcloud, why: "; host process: no Google Cloud CLI /nonexistent",
	asked: []string{"all, pubsub"}, notAsked: []string{"", "all"},
	find: func(t *testing.T, use bool) (addr, kind, version string) {
		s := localstack.PubSub(t)
		if use {
			s.Project(t) // whose end asks the server
		}
		return s.Addr, s.Kind, s.Version
	},
}

// "all" does not ask for Firestore, its own name does.
var firestore = &server{
	name: "firestore", test: "TestAskFirestore", env: "FIRESTORE_EMULATOR_HOST", bad: []string{"127.0.0.1:1", "http://ADDR"},
	kind: "emulator", title: "Firestore emulator", began: "Firestore emulator 1.",
	without: noGcloud, why: "; host process: no Google Cloud CLI /nonexistent",
	asked: []string{"all, firestore"}, notAsked: []string{"", "all,pubsub"},
	find: func(t *testing.T, use bool) (addr, kind, version string) {
		s := localstack.Firestore(t)
		if use {
			s.Project(t) // whose end asks the server
		}
		return s.Addr, s.Kind, s.Version
	},
}

// What keeps the servers from being started as processes of this machine.
const (
	noJava   = "ONCEQ_JAVA=/nonexistent"
	noPython = "ONCEQ_PYTHON=/nonexistent"
	noGcloud = "ONCEQ_GCLOUD=/nonexistent"
)

func TestAskDynamoDB(t *testing.T) { askFor(t, dynamoDB) }
func TestAskSQS(t *testing.T)      { askFor(t, sqsServer) }
func TestAskPubSub(t *testing.T)   { askFor(t, pubSub) }

func TestAskFirestore(t *testing.T) { askFor(t, firestore) }

// askFor is what the tests below run in other processes: it asks for a server and says where it is.
// Where ONCEQ_TEST_ASK is the path of a file, it has the server until the test that runs this one
// is done.
func askFor(t *testing.T, s *server) {
	t.Helper()
	what := os.Getenv("ONCEQ_TEST_ASK")
	if what == "" {
		t.Skip("run by other tests, in processes of their own")
	}
	addr, _, version := s.find(t, true)
	os.Stdout.WriteString("asked " + addr + " " + version + "\n")
	if filepath.IsAbs(what) {
		<-t.Context().Done()
	}
}

// own is a command that asks for the server once.
func (s *server) own(t *testing.T) []string {
	t.Helper()
	return []string{own(t)[0], "-test.run=^" + s.test + "$", "-test.v"}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	for _, s := range []*server{dynamoDB, pubSub, firestore} { // of SQS one is embedded
		for _, require := range slices.Concat(s.asked, s.notAsked) {
			code, test := 0, "--- SKIP: "+s.test
			if slices.Contains(s.asked, require) {
				code, test = 1, "--- FAIL: "+s.test
			}
			t.Run(s.name+" where required are "+require, func(t *testing.T) {
				t.Parallel()
				dir := tempDir(t)
				env := []string{ask, noDocker, s.without, "ONCEQ_BACKENDS=" + require}
				got, text := start(t, dir, env, append([]string{runner(t)}, s.own(t)...)...).end(t)
				if got != code || !strings.Contains(text, test) {
					t.Errorf("exit code %d, want %d with %q:\n%s", got, code, test, text)
				}
				text = strings.ReplaceAll(text, "\ntestrun: exit status 1", "")
				last(t, text, "backend "+s.name+": none (Docker: ", s.why+"), 0 of 1 tests")
				gone(t, dir)
			})
		}
	}
}

func TestServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr, kind, version := s.find(t, false)
			dir := tempDir(t)
			run := append([]string{runner(t)}, s.own(t)...)
			code, text := start(t, dir, []string{ask, noDocker, s.without, s.env + "=" + addr}, run...).end(t)
			if code != 0 || !strings.Contains(text, "asked "+addr+" ") {
				t.Errorf("exit code %d:\n%s", code, text)
			}
			if kind == s.kind {
				version = s.title
			}
			last(t, text, "backend "+s.name+": "+version+" (environment), 1 test", "")
			// somebody named it, so its tests are not skipped, required or not
			for _, bad := range s.bad {
				bad = strings.ReplaceAll(bad, "ADDR", addr)
				code, text = start(t, dir, []string{ask, s.env + "=" + bad}, run...).end(t)
				if code != 1 || !strings.Contains(text, "--- FAIL") {
					t.Errorf("exit code %d for %s:\n%s", code, bad, text)
				}
				last(t, text, "backend "+s.name+": none ("+s.env+": ", ", 0 of 1 tests")
			}
		})
	}
}

// TestServerOfTheHost: it comes up as a process of this machine, on the loopback address alone, two
// processes of a run share it, and it leaves nothing behind, killed or not.
func TestServerOfTheHost(t *testing.T) {
	t.Parallel()
	for _, s := range []*server{dynamoDB, pubSub, firestore} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if _, kind, _ := s.find(t, false); kind != s.kind {
				t.Skip("no " + s.title + " here, see above")
			}
			dir := tempDir(t)
			one := strings.Join(s.own(t), " ")
			code, text := start(t, dir, []string{ask, noDocker}, runner(t), "sh", "-c", one+" && cd / && "+one).end(t)
			if code != 0 {
				t.Fatal(text)
			}
			if !strings.Contains(text, "backend "+s.name+": "+s.began) {
				t.Skip(s.title + " does not run as a process of this machine:\n" + text)
			}
			last(t, text, "backend "+s.name+": "+s.began, " (host process), 2 tests")
			if urls := askedServer.FindAllStringSubmatch(text, -1); len(urls) != 2 || urls[0][1] != urls[1][1] {
				t.Errorf("two processes did not share one server:\n%s", text)
			}
			gone(t, dir)

			wait, _ := askWait(t)
			p := start(t, dir, []string{wait, noDocker}, s.own(t)...)
			p.killed(t, p.askedHost(t), dir)
			if processWith(dir) {
				t.Error("a process that names " + dir + " is left")
			}
		})
	}
}

// askedHost waits for what askFor or TestHoldSQS says, and tells the host and port of it.
func (p *proc) askedHost(t *testing.T) string {
	t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		p.text.WriteString(line)
		if m := askedServer.FindStringSubmatch(line); m != nil {
			if u, err := url.Parse(m[1]); err == nil && u.Host != "" {
				return u.Host
			}
			return m[1]
		}
		if err != nil {
			t.Fatalf("%s: no server\n%s", p.cmd, p.text.String())
		}
	}
}

// killed kills the process that has a server at host, which was to be reached on the loopback
// address alone, and checks that it goes, too.
func (p *proc) killed(t *testing.T, host, dir string) {
	t.Helper()
	onLoopbackOnly(t, host)
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	gone(t, dir)
	if c, err := net.Dial("tcp", host); err == nil {
		c.Close()
		t.Errorf("it still answers at %s", host)
	}
}

// onLoopbackOnly fails the test where the server can be reached at another of this machine's
// addresses.
func onLoopbackOnly(t *testing.T, host string) {
	t.Helper()
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if c, err := net.Dial("tcp", net.JoinHostPort(n.IP.String(), port)); err == nil {
			c.Close()
			t.Errorf("it answers at %s, where others may come", n.IP)
		}
	}
}
