package promrules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// surface is what a worker shows, by the golden file that adapters/otelonceq compares with a real
// scrape: the labels of each metric. A histogram is there by its three names.
func surface(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(adapter + "/testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]string{"ALERTS": nil}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, " ")
		kind, rest, _ := strings.Cut(rest, " ")
		text, _, _ := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		ls := strings.Fields(text)
		if kind != "histogram" {
			m[name] = ls
			continue
		}
		m[name+"_sum"], m[name+"_count"], m[name+"_bucket"] = ls, ls, append(slices.Clone(ls), "le")
	}
	return m
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Record      string            `yaml:"record"`
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// TestNames parses every query of the rules and of the dashboard, and compares the metrics and
// labels that they ask for with what a worker shows. A metric that was renamed turns it red.
func TestNames(t *testing.T) {
	known := surface(t)
	var rules ruleFile
	read(t, rulesFile, &rules)
	queries := 0
	check := func(where, query string) []string {
		queries++
		bad, left := problems(known, query)
		for _, b := range bad {
			t.Errorf("%s: %s\n\t%s", where, b, query)
		}
		return left
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			left := check(r.Record+r.Alert, r.Expr)
			if r.Record != "" {
				known[r.Record] = left
				continue
			}
			if r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
				t.Errorf("%s: its severity is %q", r.Alert, r.Labels["severity"])
			}
			const pages = "https://github.com/onceq/onceq/blob/main/docs/"
			means := "metrics.md#" + strings.ToLower(r.Alert)
			if r.Annotations["summary"] == "" || r.Annotations["docs_url"] != pages+means {
				t.Errorf("%s: its annotations are %v", r.Alert, r.Annotations)
			}
			night, isNight := strings.CutPrefix(r.Annotations["runbook_url"], pages+"runbook.md#")
			if !isNight || !slices.Contains(headings(t, "runbook.md"), night) || !slices.Contains(headings(t, "metrics.md"), strings.ToLower(r.Alert)) {
				t.Errorf("%s: no page has its night, %q, or its section", r.Alert, r.Annotations["runbook_url"])
			}
			if !hasRow(t, "(#"+night+")", "("+means+")") {
				t.Errorf("%s: the first table of the runbook does not lead from it to %s", r.Alert, night)
			}
		}
	}
	for _, q := range dashboard(t) {
		check("the panel "+q.title, q.expr)
	}
	if queries < 50 {
		t.Errorf("%d queries were found", queries)
	}
}

// page is a page of docs.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// headings are the anchors of a page, as GitHub makes them.
func headings(t *testing.T, name string) (anchors []string) {
	t.Helper()
	for line := range strings.Lines(page(t, name)) {
		if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			text = strings.Map(func(r rune) rune {
				if strings.ContainsRune(".,?'", r) {
					return -1
				}
				return r
			}, strings.ToLower(strings.TrimSpace(text)))
			anchors = append(anchors, strings.ReplaceAll(text, " ", "-"))
		}
	}
	return anchors
}

// hasRow reports whether a row of the runbook has both texts.
func hasRow(t *testing.T, a, b string) bool {
	t.Helper()
	for line := range strings.Lines(page(t, "runbook.md")) {
		if strings.HasPrefix(line, "|") && strings.Contains(line, a) && strings.Contains(line, b) {
			return true
		}
	}
	return false
}

// TestNamesSees shows that the check is one.
func TestNamesSees(t *testing.T) {
	known := surface(t)
	for query, want := range map[string]string{
		`rate(jobs_done_total[5m])`:                                      "no metric jobs_done_total",
		`jobs_completed_total{class="a"}`:                                "jobs_completed_total has no label class",
		`sum by (error_class) (jobs_completed_total)`:                    "no label error_class",
		`rate(job_wait_seconds[5m])`:                                     "no metric job_wait_seconds",
		`queue_depth and on (type) jobs_completed_total`:                 "no label type",
		`sum by (queue) (`:                                               "parse error",
		`sum without (pod) (jobs_completed_total)`:                       "",
		`histogram_quantile(0.9, sum by (le) (job_wait_seconds_bucket))`: "",
	} {
		bad, _ := problems(known, query)
		if got := strings.Join(bad, "; "); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// problems says what a query asks for that is not there, and which labels its answer has.
func problems(known map[string][]string, query string) (bad, left []string) {
	for name, value := range map[string]string{"$__rate_interval": "5m", "$__interval": "1m"} {
		query = strings.ReplaceAll(query, name, value)
	}
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}, nil
	}
	left = labelsOf(known, expr, &bad)
	return bad, left
}

// labelsOf are the labels of what e answers; what does not exist is added to bad.
func labelsOf(known map[string][]string, e parser.Expr, bad *[]string) (ls []string) {
	grouping := func(by []string, inner []string) {
		for _, l := range by {
			if !slices.Contains(inner, l) {
				*bad = append(*bad, fmt.Sprintf("no label %s in %s", l, e))
			}
		}
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		ls, ok := known[e.Name]
		if !ok {
			*bad = append(*bad, "no metric "+e.Name)
			return nil
		}
		for _, m := range e.LabelMatchers {
			if m.Name != labels.MetricName && !slices.Contains(ls, m.Name) {
				*bad = append(*bad, e.Name+" has no label "+m.Name)
			}
		}
		return ls
	case *parser.MatrixSelector:
		return labelsOf(known, e.VectorSelector, bad)
	case *parser.AggregateExpr:
		inner := labelsOf(known, e.Expr, bad)
		if e.Without {
			return slices.DeleteFunc(slices.Clone(inner), func(l string) bool { return slices.Contains(e.Grouping, l) })
		}
		grouping(e.Grouping, inner)
		return e.Grouping
	case *parser.BinaryExpr:
		left, right := labelsOf(known, e.LHS, bad), labelsOf(known, e.RHS, bad)
		if v := e.VectorMatching; v != nil && v.On {
			grouping(v.MatchingLabels, left)
			grouping(v.MatchingLabels, right)
		}
		if left == nil {
			return right
		}
		return left
	default:
		for child := range parser.ChildrenIter(e) {
			if inner, ok := child.(parser.Expr); ok {
				if got := labelsOf(known, inner, bad); got != nil {
					ls = got
				}
			}
		}
		return ls
	}
}

type query struct{ title, expr string }

// dashboard reads the queries of the panels and of the variables, and checks what Grafana needs.
func dashboard(t *testing.T) (qs []query) {
	t.Helper()
	b, err := os.ReadFile(adapter + "/dashboards/onceq.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title      string `json:"title"`
		UID        string `json:"uid"`
		Schema     int    `json:"schemaVersion"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	var variables, rows []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if inner, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
			of, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			qs = append(qs, query{"variable " + v.Name, "sum by (" + label + ") (" + of + ")"})
		}
	}
	seen := make(map[int]bool)
	for _, p := range d.Panels {
		if seen[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		seen[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("the panel %s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			qs = append(qs, query{p.Title, target.Expr})
		}
	}
	if d.Schema < 38 || d.UID == "" || d.Title == "" {
		t.Errorf("schema %d, uid %q, title %q", d.Schema, d.UID, d.Title)
	}
	if want := []string{"datasource", "queue", "type"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %v, want %v", variables, want)
	}
	if want := []string{"Overview", "Latency", "Failures", "Workers", "Store", "Dead letters"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %v, want %v", rows, want)
	}
	return qs
}
