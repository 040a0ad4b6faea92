package promrules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

const (
	adapter   = "../../../adapters/otelonceq"
	rulesFile = adapter + "/dashboards/rules.yaml"
	testsFile = adapter + "/testdata/rules_test.yaml"
)

// testFile is what we use of promtool's format; what it does not know is refused.
type testFile struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Order              []string       `yaml:"group_eval_order"`
	Tests              []testGroup    `yaml:"tests"`
}

type testGroup struct {
	Name   string         `yaml:"name"`
	Every  model.Duration `yaml:"interval"`
	Series []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []alertTest `yaml:"alert_rule_test"`
}

type alertTest struct {
	At       model.Duration `yaml:"eval_time"`
	Name     string         `yaml:"alertname"`
	Expected []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

func read(t *testing.T, file string, to any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestAlerts runs each test of the file, and checks that each alert of the rules fires in one of
// them and stays silent in another.
func TestAlerts(t *testing.T) {
	var file testFile
	read(t, testsFile, &file)
	if len(file.RuleFiles) != 1 || filepath.Join(filepath.Dir(testsFile), file.RuleFiles[0]) != filepath.Clean(rulesFile) {
		t.Fatalf("rule_files is %v", file.RuleFiles)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	var all []string
	for _, g := range file.Tests {
		t.Run(g.Name, func(t *testing.T) {
			if len(g.Alerts) == 0 || g.Name == "" {
				t.Fatal("the test has no name, or asks for nothing")
			}
			names := run(t, &file, &g, fires, silent)
			all = names
		})
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	for _, name := range all {
		if !fires[name] {
			t.Errorf("no test has %s fire", name)
		}
		if !silent[name] {
			t.Errorf("no test has %s stay silent", name)
		}
	}
}

// run evaluates the rules over the group's series, and answers the names of all alerts: an alert's
// own and its severity.
func run(t *testing.T, file *testFile, g *testGroup, fires, silent map[string]bool) (names []string) {
	t.Helper()
	every := time.Duration(file.EvaluationInterval)
	var load strings.Builder
	fmt.Fprintf(&load, "load %v\n", time.Duration(g.Every))
	for _, s := range g.Series {
		fmt.Fprintf(&load, "  %s %s\n", s.Series, s.Values)
	}
	p := parser.NewParser(parser.Options{})
	suite, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: p})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := suite.Close(); err != nil {
			t.Error(err)
		}
	}()
	suite.SubqueryInterval = every
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), AppendableV2: suite.Storage(), Context: context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(), Parser: p,
	})
	loaded, errs := manager.LoadGroups(every, labels.EmptyLabels(), "", nil, false, rulesFile)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var groups []*rules.Group
	for _, group := range loaded {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b *rules.Group) int {
		return slices.Index(file.Order, a.Name()) - slices.Index(file.Order, b.Name())
	})
	var alerts []*rules.AlertingRule
	for _, group := range groups {
		for _, r := range group.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				a.SetRestored(true)
				alerts = append(alerts, a)
				names = append(names, nameOf(a))
			}
		}
	}
	last := time.Duration(0)
	for _, a := range g.Alerts {
		last = max(last, time.Duration(a.At))
	}
	for at := time.Duration(0); at <= last; at += every {
		ts := time.Unix(0, 0).UTC().Add(at)
		suite.WithSamplesTill(ts, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Eval(suite.Context(), ts)
				for _, r := range group.Rules() {
					if err := r.LastError(); err != nil {
						t.Fatalf("%s at %v: %v", r.Name(), at, err)
					}
				}
			}
		})
		for _, want := range g.Alerts {
			if time.Duration(want.At) == at {
				compare(t, alerts, &want, fires, silent)
			}
		}
	}
	return names
}

func nameOf(a *rules.AlertingRule) string { return a.Name() + " " + a.Labels().Get("severity") }

// compare checks which alerts of the name are firing now.
func compare(t *testing.T, alerts []*rules.AlertingRule, want *alertTest, fires, silent map[string]bool) {
	t.Helper()
	var got, expected []string
	known := false
	for _, a := range alerts {
		if a.Name() != want.Name {
			continue
		}
		known = true
		n := len(got)
		for _, active := range a.ActiveAlerts() {
			if active.State == rules.StateFiring {
				got = append(got, fmt.Sprintf("%v %v", active.Labels, active.Annotations))
			}
		}
		if len(got) > n {
			fires[nameOf(a)] = true
		} else {
			silent[nameOf(a)] = true
		}
	}
	if !known {
		t.Fatalf("there is no alert %s", want.Name)
	}
	for _, e := range want.Expected {
		b := labels.NewBuilder(labels.FromMap(e.Labels))
		b.Set(labels.AlertName, want.Name)
		expected = append(expected, fmt.Sprintf("%v %v", b.Labels(), labels.FromMap(e.Annotations)))
	}
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		t.Errorf("%s at %v: firing are\n%s\nwant\n%s", want.Name, time.Duration(want.At), strings.Join(got, "\n"), strings.Join(expected, "\n"))
	}
}
