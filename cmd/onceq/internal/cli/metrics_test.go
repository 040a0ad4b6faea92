package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onceq/onceq/broker"
	"github.com/onceq/onceq/control"
	"github.com/onceq/onceq/ops"
)

const metricsOfOne = `# HELP dead_letter_queue_size How many dead letters the queue named has, visible and in flight.
# TYPE dead_letter_queue_size gauge
dead_letter_queue_size{queue="orders"} 1
# HELP queue_depth How many messages the queue has, as the broker tells.
# TYPE queue_depth gauge
queue_depth{queue="orders",state="delayed"} 0
queue_depth{queue="orders",state="in_flight"} 0
queue_depth{queue="orders",state="visible"} 2
# HELP worker_seats Live workers of the queue in all processes, as the store knows them.
# TYPE worker_seats gauge
worker_seats{queue="orders"} 1
`

// metrics prints what otelonceq would export, for a process that is no worker.
func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.send("A-1", "A-2")
	r.died("D-1", "timeout", "no answer")
	r.seat("w-1/1", nil)
	if a := r.run("metrics").want(0); a.out != metricsOfOne {
		t.Errorf("it prints\n%s\nwant\n%s", a.out, metricsOfOne)
	}
	r.run("--yes", "queue", "pause", "orders", "--for", "1h", "--type", "charge", "--reason", "x")
	r.run("metrics").want(0, `pause_since_seconds{queue="orders",type="charge"} `)
	r.run("metrics", "nobody").want(2, "nobody")
	r.run("metrics", "--listen", "no address").want(2, "--listen")
}

// A pause is told as long as it lasts, and is gone once it is read that it ended. Else the alert of
// a forgotten pause is silent where no worker tells of it, and that of a stuck queue is loud.
func TestMetricsOfPauses(t *testing.T) {
	at := time.Now()
	for name, c := range map[string]struct {
		rules []control.Rule
		want  string
	}{
		"none":            {nil, ""},
		"of the queue":    {[]control.Rule{{Do: control.Pause, Queue: "a", Made: at}}, `pause_since_seconds{queue="a"} ` + fmt.Sprint(at.Unix())},
		"of a type":       {[]control.Rule{{Do: control.Pause, Scope: "s", Type: "t", Made: at}}, `pause_since_seconds{queue="a",scope="s",type="t"} ` + fmt.Sprint(at.Unix())},
		"by no slots":     {[]control.Rule{{Do: control.Limit, Made: at}}, `pause_since_seconds{queue="a"} ` + fmt.Sprint(at.Unix())},
		"a limit is none": {[]control.Rule{{Do: control.Limit, Slots: 1, Made: at}}, ""},
		"the first of two": {
			[]control.Rule{{Do: control.Pause, Made: at}, {Do: control.Pause, Made: at.Add(-time.Hour)}, {Do: control.Pause, Made: at}},
			`pause_since_seconds{queue="a"} ` + fmt.Sprint(at.Unix()-3600),
		},
	} {
		e := &exporter{stored: true}
		e.keep([]ops.QueueState{{Queue: "a", Rules: c.rules, WorkersErr: io.EOF}}, at)
		var got strings.Builder
		for line := range strings.Lines(e.text(at)) {
			if !strings.HasPrefix(line, "#") {
				got.WriteString(strings.TrimSpace(line))
			}
		}
		if got.String() != c.want {
			t.Errorf("%s: %q, want %q", name, got.String(), c.want)
		}
		for after, want := range map[time.Duration]bool{metricsFresh: c.want != "", metricsFresh + time.Second: false} {
			e.keep([]ops.QueueState{{Queue: "a", RulesErr: io.EOF, WorkersErr: io.EOF}}, at.Add(metricsEvery))
			if got := e.text(at.Add(after)) != ""; got != want {
				t.Errorf("%s: rules that cannot be read: after %v it is told: %t", name, after, got)
			}
		}
		e.keep([]ops.QueueState{{Queue: "a", WorkersErr: io.EOF}}, at.Add(metricsEvery))
		if text := e.text(at.Add(metricsEvery)); text != "" {
			t.Errorf("%s: after its end it tells %q", name, text)
		}
	}
}

// Without a store nobody knows of workers. A 0 would call for somebody at night.
func TestMetricsWithoutAStore(t *testing.T) {
	r := newRig(t)
	r.config(strings.Replace(r.file, "    store: "+r.storeURL+"\n", "", 1))
	r.run("metrics").want(0, "queue_depth").not("worker_seats")
}

// A queue that cannot be asked leaves no series of its own, and the others are there.
func TestMetricsOfAQueueThatIsAway(t *testing.T) {
	r := newRig(t)
	r.config(r.file + "")
	r.config(strings.Replace(r.file, "        scopes:", "      gone:\n        url: sqs+"+r.server.URL+"/gone\n      orders2:\n        url: sqs+"+r.server.URL+"/orders\n        scopes:", 1))
	a := r.run("metrics")
	if a.code == 0 {
		t.Error("a queue that is not there is a success")
	}
	a.want(a.code, `queue_depth{queue="orders",state="visible"} 0`, "gone").not(`queue_depth{queue="gone"`)
}

// With --listen it serves until it is ended, and ends with success.
func TestMetricsListen(t *testing.T) {
	r := newRig(t)
	r.send("A-1", "A-2")
	r.died("D-1", "timeout", "no answer")
	r.seat("w-1/1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	on, said := r.io(nil, nil), (*io.PipeWriter)(nil)
	on.Out = io.Discard
	var lines *io.PipeReader
	lines, said = io.Pipe()
	on.Err = said
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, []string{"metrics", "--listen", "127.0.0.1:0"}, on)
		said.Close()
	}()
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatal(line, err)
	}
	url := regexp.MustCompile(`http://\S+/metrics`).FindString(line)
	go io.Copy(io.Discard, lines)
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(line, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || string(text) != metricsOfOne || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("a scrape is answered %v %s\n%s", err, res.Header, text)
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("it ends with %d", c)
	}
}

// A number that cannot be read again is left out after three rounds: an old one would keep an alert
// silent. What a service does not tell has no series.
func TestMetricsThatAreOld(t *testing.T) {
	e := &exporter{stored: true}
	at := time.Now()
	one := int64(1)
	e.keep([]ops.QueueState{{Queue: "a", Depth: &broker.Depth{Visible: 7}}, {Queue: "b", Letters: &one}}, at)
	e.keep([]ops.QueueState{{Queue: "a", DepthErr: io.ErrUnexpectedEOF, WorkersErr: io.ErrUnexpectedEOF}, {Queue: "b", Letters: &one}}, at.Add(metricsEvery))
	for after, want := range map[time.Duration]bool{0: true, metricsFresh: true, metricsFresh + time.Second: false} {
		text := e.text(at.Add(after))
		if got := strings.Contains(text, `queue_depth{queue="a",state="visible"} 7`); got != want {
			t.Errorf("after %v:\n%s", after, text)
		}
		if !strings.Contains(text, `dead_letter_queue_size{queue="b"} 1`) || strings.Contains(text, `queue_depth{queue="b"`) {
			t.Errorf("after %v:\n%s", after, text)
		}
	}
	if text := e.text(at.Add(time.Hour)); text != "" {
		t.Errorf("an hour later:\n%s", text)
	}
}

func TestMetricsLabels(t *testing.T) {
	for name, want := range map[string]string{
		`a"b\c` + "\nd":          `"a\"b\\c\nd"`,
		"\xff":                   `"_"`,
		strings.Repeat("x", 101): `"` + strings.Repeat("x", 100) + `"`,
	} {
		if got := (series{metric: "m", queue: name}).String(); got != "m{queue="+want+"}" {
			t.Errorf("%q is written %s", name, got)
		}
	}
}

// The names are those of otelonceq, whose alerts read them.
func TestMetricsNames(t *testing.T) {
	rules, err := os.ReadFile(filepath.FromSlash("../../../../adapters/otelonceq/dashboards/rules.yaml"))
	if err != nil {
		t.Skip("the module stands apart from otelonceq")
	}
	for _, m := range metricsAbout {
		if !strings.Contains(string(rules), m.name+"{") && !strings.Contains(string(rules), m.name+")") && !strings.Contains(string(rules), m.name+" ") {
			t.Errorf("no alert reads %s", m.name)
		}
	}
}
