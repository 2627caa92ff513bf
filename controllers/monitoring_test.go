package controllers

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/member"
	"example.com/memcached-operator/drainer/router/status"
)

const monitoring = "../config/prometheus/"

// ruleGroups is the part of a Prometheus rule file that is checked here.
type ruleGroups struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func parsed[T any](t *testing.T, file string) (v T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// served has the labels of every metric that the manager serves, the operator's
// own and controller-runtime's, and of those of members and routers.
func served(t *testing.T) map[string][]string {
	t.Helper()
	own := prometheus.NewRegistry()
	if _, err := NewMetrics(own, nil); err != nil {
		t.Fatal(err)
	}
	theirs, ok := ctrlmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("controller-runtime's registry can't be asked for its metrics any more")
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		own.Describe(descs)
		theirs.Describe(descs)
		for _, d := range member.MetricDescs() {
			descs <- d
		}
		router := status.Report{Members: []status.Member{{}}}
		router.Requests[0][0][0] = 1
		metrics := make(chan prometheus.Metric, 100)
		router.Collect(metrics)
		close(metrics)
		for m := range metrics {
			descs <- m.Desc()
		}
	}()
	shape := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for d := range descs {
		match := shape.FindStringSubmatch(d.String())
		if match == nil {
			t.Fatalf("can't read %s", d)
		}
		all[match[1]] = strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	return all
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"`)
	metricName = regexp.MustCompile(`\b(?:memcached|controller_runtime|rest_client|workqueue|leader_election|process)_[a-z_]+`)
	selector   = regexp.MustCompile(`\b([a-z_]+)\{([^}]*)\}`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
	word       = regexp.MustCompile(`[a-z_]+`)
)

// family of a series: a histogram has several.
func family(name string, all map[string][]string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(name, suffix)
		if _, ok := all[base]; cut && ok {
			return base
		}
	}
	return name
}

// added are the labels that Prometheus adds: the bound of a bucket, and where it scraped, as the monitors say.
var added = map[string]bool{"le": true, "job": true, "instance": true, "namespace": true, "pod": true, "app_kubernetes_io_instance": true}

// checkQuery fails if a query names a metric or a label that doesn't exist.
func checkQuery(t *testing.T, where, query string, all map[string][]string) (used []string) {
	t.Helper()
	query = quoted.ReplaceAllString(query, "")
	labels := maps.Clone(added)
	for _, name := range metricName.FindAllString(query, -1) {
		name = family(name, all)
		if _, ok := all[name]; !ok {
			t.Errorf("%s asks for %s, which is not served", where, name)
		}
		used = append(used, name)
		for _, l := range all[name] {
			labels[l] = true
		}
	}
	if len(used) == 0 {
		t.Errorf("%s asks for none of our metrics: %s", where, query)
	}
	for _, match := range selector.FindAllStringSubmatch(query, -1) {
		for _, l := range word.FindAllString(match[2], -1) {
			if !slices.Contains(all[family(match[1], all)], l) && !added[l] {
				t.Errorf("%s asks for %s by a label %s, which it doesn't have", where, match[1], l)
			}
		}
	}
	for _, match := range grouping.FindAllStringSubmatch(query, -1) {
		for _, l := range word.FindAllString(match[1], -1) {
			if !labels[l] {
				t.Errorf("%s groups by %s, which none of its metrics has", where, l)
			}
		}
	}
	return used
}

func TestAlertsAskForMetricsThatAreServed(t *testing.T) {
	all := served(t)
	for _, group := range parsed[ruleGroups](t, monitoring+"rules.yaml").Groups {
		for _, rule := range group.Rules {
			checkQuery(t, rule.Alert, rule.Expr, all)
		}
	}
}

func TestTheAlertOfTheLeaderKnowsTheManagersLease(t *testing.T) {
	text, err := os.ReadFile("../cmd/manager/main.go")
	if err != nil {
		t.Fatal(err)
	}
	lease := regexp.MustCompile(`leaseName = "([^"]+)" \+ cachev1alpha1\.Group\n`).FindSubmatch(text)
	if lease == nil {
		t.Fatal("cmd/manager/main.go names no lease any more")
	}
	asked := 0
	for _, group := range parsed[ruleGroups](t, monitoring+"rules.yaml").Groups {
		for _, rule := range group.Rules {
			for _, match := range regexp.MustCompile(`leader_election_master_status(\{[^}]*\})?`).FindAllString(rule.Expr, -1) {
				asked++
				if want := fmt.Sprintf("leader_election_master_status{name=%q}", string(lease[1])+cachev1alpha1.Group); match != want {
					t.Errorf("%s asks for %s, want %s", rule.Alert, match, want)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("no alert asks who leads")
	}
}

func TestTheDashboardShowsEachMetricAndNoneThatIsNotServed(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	text, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := served(t)
	shown := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range checkQuery(t, "panel "+panel.Title, target.Expr, all) {
				shown[name] = true
			}
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			checkQuery(t, "variable "+v.Name, v.Definition, all)
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "memcached_operator_") && !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestBothRuleFilesHaveTheSameRules(t *testing.T) {
	type object struct {
		Spec ruleGroups `json:"spec"`
	}
	plain, operators := parsed[ruleGroups](t, monitoring+"rules.yaml"), parsed[object](t, monitoring+"prometheusrule.yaml").Spec
	if diff := cmp.Diff(plain, operators); diff != "" || len(plain.Groups) == 0 {
		t.Errorf("prometheusrule.yaml differs from rules.yaml (-rules +prometheusrule):\n%s", diff)
	}
}

// promtool runs the tests (make alerts). This checks that each alert has both kinds, and
// a section in the runbook.
func TestEachAlertIsTestedAndInTheRunbook(t *testing.T) {
	type ruleTests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string           `json:"alertname"`
				ExpAlerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range parsed[ruleTests](t, monitoring+"rules_test.yaml").Tests {
		for _, check := range test.AlertRuleTest {
			if len(check.ExpAlerts) > 0 {
				fires[check.Alertname] = true
			} else {
				silent[check.Alertname] = true
			}
		}
	}
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^### (Memcached\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections[match[1]] = true
	}
	for _, group := range parsed[ruleGroups](t, monitoring+"rules.yaml").Groups {
		for _, rule := range group.Rules {
			if !fires[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("rules_test.yaml: %s fires in a test: %v, is silent in one: %v; want both", rule.Alert, fires[rule.Alert], silent[rule.Alert])
			}
			if !sections[rule.Alert] {
				t.Errorf("docs/runbook.md has no section ### %s", rule.Alert)
			}
			delete(sections, rule.Alert)
			if want := "/docs/runbook.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(rule.Annotations["runbook_url"], want) {
				t.Errorf("%s: runbook_url is %q, want …%s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s lacks a severity, a summary or a description", rule.Alert)
			}
		}
	}
	for name := range sections {
		t.Errorf("docs/runbook.md has a section %s, which no alert is called", name)
	}
}
