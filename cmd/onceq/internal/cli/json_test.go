package cli

import (
	"reflect"
	"strings"
	"testing"
)

// views are the values that JSON has, by the heading in help/json.txt.
var views = map[string]any{
	"queue ls, queue show, top: a queue": queueView{},
	"a type of job":                      typeView{},
	"a setting":                          settingView{},
	"a rule":                             ruleView{},
	"queue pause, queue limit, queue resume: what became of it": followedView{},
	"queue peek: a message":             messageView{},
	"queue send":                        sentView{},
	"queue purge":                       emptiedView{},
	"key show, key ls: a key":           keyView{},
	"a step":                            stepView{},
	"a saved step":                      savedView{},
	"key resolve, cancel, forget":       doneView{},
	"jobs running, jobs stalled: a job": jobView{},
	"workers: a worker":                 workerView{},
	"doctor: a check":                   checkupView{},
	"audit: an act":                     actView{},
	"dlq ls, dlq show: a letter":        letterView{},
	"dlq group: a group":                groupView{},
	"dlq replay --dry-run, dlq purge --dry-run: a plan": planView{},
	"dlq replay, dlq purge: what became of it":          replayedView{},
	"a batch":                       batchView{},
	"dlq import, queue send --from": importedView{},
	"dlq redrive":                   redriveView{},
	"web: what it serves":           webView{},
	"reconcile":                     evidenceView{},
	"reconcile: a finding":          findingView{},
	"an effect":                     effectView{},
	"schedule ls: an entry":         scheduleView{},
}

// TestJSONFields: "onceq help json" names each field, and no other. A field that goes from here is
// missing in somebody's program: fields are only added.
func TestJSONFields(t *testing.T) {
	text, err := topics.ReadFile("help/json.txt")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	heading := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
		case !strings.HasPrefix(line, "  "):
			heading = line
		default:
			told[heading] = append(told[heading], strings.Fields(line)[0])
		}
	}
	for heading, v := range views {
		var have []string
		for f := range reflect.TypeOf(v).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			have = append(have, name)
		}
		if got, want := strings.Join(told[heading], " "), strings.Join(have, " "); got != want {
			t.Errorf("%s:\nhelp has %s\ncode has %s", heading, got, want)
		}
		delete(told, heading)
	}
	for heading := range told {
		t.Errorf("help has %q, which is no value", heading)
	}
	r := newRig(t)
	if got := r.run("help", "json").want(0).out; got != string(text) {
		t.Error("onceq help json prints something else")
	}
}
