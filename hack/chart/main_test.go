package main

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
)

const chartDir = "../../charts/memcached-operator"

// others is a release whose names have nothing in common with the chart's.
func others(t *testing.T, set ...string) release {
	t.Helper()
	r := release{name: "ours", namespace: "caching", values: map[string]any{}}
	for _, s := range set {
		if err := strvals.ParseInto(s, r.values); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func rendered(t *testing.T, r release, hook string) map[string]map[string]any {
	t.Helper()
	got, err := r.render(chartDir, hook)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// at follows a path of keys and indexes, and fails if there is nothing.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
		if value == nil {
			t.Fatalf("nothing at %v of %v", step, path)
		}
	}
	return value
}

// The Job that uninstalls the operator needs what the operator's pod needs in a cluster: a mesh's label, limits
// for a quota.
func TestTheHooksPodTakesWhatTheOperatorsTakes(t *testing.T) {
	values := []string{"image.tag=v1", "podLabels.team=shop", "podAnnotations.mesh=off", "resources.limits.cpu=1", "resources.limits.memory=64Mi"}
	job := rendered(t, others(t, values...), "pre-delete")["batch/v1 Job caching/ours-memcached-operator-uninstall"]
	template := at(t, job, "spec", "template")
	if got := at(t, template, "metadata", "labels").(map[string]any); got["team"] != "shop" || got["app.kubernetes.io/name"] != "memcached-operator-uninstall" {
		t.Errorf("labels %v", got)
	}
	if got := template.(map[string]any)["metadata"].(map[string]any)["annotations"]; fmt.Sprint(got) != "map[mesh:off]" {
		t.Errorf("annotations %v", got)
	}
	if got := at(t, template, "spec", "containers", 0, "resources", "limits").(map[string]any); fmt.Sprint(got["cpu"]) != "1" || got["memory"] != "64Mi" {
		t.Errorf("limits %v", got)
	}
}

func TestTheHookFollowsTheRelease(t *testing.T) {
	got := rendered(t, others(t, "uninstall.timeoutSeconds=7", "image.tag=v1", "args={--namespaces=a,--log-level=debug}"), "pre-delete")
	keys := slices.Sorted(maps.Keys(got))
	want := []string{
		"batch/v1 Job caching/ours-memcached-operator-uninstall",
		"rbac.authorization.k8s.io/v1 ClusterRole /ours-memcached-operator-uninstall",
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding /ours-memcached-operator-uninstall",
		"rbac.authorization.k8s.io/v1 Role caching/ours-memcached-operator-uninstall-operator",
		"rbac.authorization.k8s.io/v1 RoleBinding caching/ours-memcached-operator-uninstall-operator",
		"v1 ServiceAccount caching/ours-memcached-operator-uninstall",
	}
	if !slices.Equal(keys, want) {
		t.Fatalf("got %q, want %q", keys, want)
	}
	pod := at(t, got[want[0]], "spec", "template", "spec")
	container := at(t, pod, "containers", 0)
	args := at(t, container, "args").([]any)
	wantArgs := []any{"--deployment=caching/ours-memcached-operator-manager", "--memcacheds=Keep", "--timeout=7s", "--namespaces=a"}
	if !slices.Equal(args, wantArgs) {
		t.Errorf("the Job's arguments are %v, want %v", args, wantArgs)
	}
	if account := at(t, pod, "serviceAccountName"); account != "ours-memcached-operator-uninstall" {
		t.Errorf("the Job's account is %v", account)
	}
	// The hook stops the release's Deployment, and may do so.
	release := rendered(t, others(t, "image.tag=v1"), "")
	manager := release["apps/v1 Deployment caching/ours-memcached-operator-manager"]
	if manager == nil {
		t.Fatalf("no manager in %q", slices.Sorted(maps.Keys(release)))
	}
	if a, b := at(t, container, "image"), at(t, manager, "spec", "template", "spec", "containers", 0, "image"); a != b {
		t.Errorf("the hook runs %v, the manager %v", a, b)
	}
	if name := at(t, got[want[3]], "rules", 0, "resourceNames", 0); name != "ours-memcached-operator-manager" {
		t.Errorf("the hook may stop %v", name)
	}
	for _, binding := range []string{want[2], want[4]} {
		subject := at(t, got[binding], "subjects", 0)
		if at(t, subject, "name") != "ours-memcached-operator-uninstall" || at(t, subject, "namespace") != "caching" {
			t.Errorf("%s binds %v", binding, subject)
		}
	}
}

func TestTheHookOfAnOperatorOfOneNamespaceHasNoRightBeyondIt(t *testing.T) {
	for key := range rendered(t, others(t, "namespaced=true"), "pre-delete") {
		if strings.Contains(key, "ClusterRole") {
			t.Errorf("there is %s", key)
		}
	}
}

// helm test checks the release's own Deployment, and may read nothing else.
func TestTheTestOfAReleaseChecksItsDeployment(t *testing.T) {
	for _, set := range []string{"namespaced=false", "namespaced=true"} {
		got := rendered(t, others(t, set, "image.tag=v1", "podLabels.team=shop"), "test")
		keys := slices.Sorted(maps.Keys(got))
		want := []string{
			"rbac.authorization.k8s.io/v1 Role caching/ours-memcached-operator-check",
			"rbac.authorization.k8s.io/v1 RoleBinding caching/ours-memcached-operator-check",
			"v1 Pod caching/ours-memcached-operator-check",
			"v1 ServiceAccount caching/ours-memcached-operator-check",
		}
		if !slices.Equal(keys, want) {
			t.Fatalf("%s: got %q, want %q", set, keys, want)
		}
		const deployment = "ours-memcached-operator-manager"
		container := at(t, got[want[2]], "spec", "containers", 0)
		if args := at(t, container, "args").([]any); !slices.Equal(args, []any{"--deployment=caching/" + deployment}) {
			t.Errorf("%s: arguments %v", set, args)
		}
		if rules := fmt.Sprint(at(t, got[want[0]], "rules")); rules != "[map[apiGroups:[apps] resourceNames:["+deployment+"] resources:[deployments] verbs:[get]]]" {
			t.Errorf("%s: it may %s", set, rules)
		}
		release := rendered(t, others(t, set, "image.tag=v1"), "")
		manager := at(t, release["apps/v1 Deployment caching/"+deployment], "spec", "template", "spec")
		for _, path := range [][]any{{"securityContext"}, {"containers", 0, "image"}, {"containers", 0, "securityContext"}} {
			if a, b := at(t, got[want[2]], append([]any{"spec"}, path...)...), at(t, manager, path...); !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %v is %v, the manager's %v", set, path, a, b)
			}
		}
	}
}

// A Role can't give a right to volumes.
func TestAnOperatorOfOneNamespaceMayBeGivenTheRightToVolumesAlone(t *testing.T) {
	for set, want := range map[string][]string{
		"namespaced=true": nil,
		"namespaced=true,volumeRole.enabled=true": {
			"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy /ours-memcached-operator-volumes.caching",
			"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding /ours-memcached-operator-volumes.caching",
			"rbac.authorization.k8s.io/v1 ClusterRole /ours-memcached-operator-volumes-role.caching",
			"rbac.authorization.k8s.io/v1 ClusterRoleBinding /ours-memcached-operator-volumes-rolebinding.caching",
		},
	} {
		got := rendered(t, others(t, set, "crd.install=false"), "")
		var beyond []string
		for key := range got {
			if strings.Contains(key, " /") {
				beyond = append(beyond, key)
			}
		}
		slices.Sort(beyond)
		if !slices.Equal(beyond, want) {
			t.Errorf("%s: got %q, want %q", set, beyond, want)
		}
		if role := got["rbac.authorization.k8s.io/v1 ClusterRole /ours-memcached-operator-volumes-role.caching"]; role != nil && fmt.Sprint(at(t, role, "rules")) != "[map[apiGroups:[] resources:[persistentvolumes] verbs:[get patch]]]" {
			t.Errorf("it gives %v", at(t, role, "rules"))
		}
	}
}

// TestReleasesOfOneNamespaceEachHaveNothingInCommon, whatever their names: Helm refuses an object of another
// release. A dot may be in a release's name, and not in a namespace's.
func TestReleasesOfOneNamespaceEachHaveNothingInCommon(t *testing.T) {
	of := map[string]string{}
	for _, r := range []release{
		{name: "ours", namespace: "caching"}, {name: "ours", namespace: "shop"}, {name: "ours-shop", namespace: "caching"},
		{name: "ours", namespace: "shop-caching"}, {name: "ours.caching", namespace: "shop"},
	} {
		r.values = others(t, "namespaced=true,volumeRole.enabled=true,crd.install=false").values
		for _, hook := range []string{"", "pre-delete", "test"} {
			got := rendered(t, r, hook)
			for key, object := range got {
				if other := of[key]; other != "" {
					t.Errorf("releases %s and %s/%s both have %s", other, r.namespace, r.name, key)
				}
				of[key] = r.namespace + "/" + r.name
				if !strings.Contains(key, "Binding") {
					continue
				}
				names, policy := "", strings.Contains(key, "Policy")
				if policy {
					names = fmt.Sprintf("admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy /%s", at(t, object, "spec", "policyName"))
				} else {
					kind := at(t, object, "roleRef", "kind").(string)
					namespace := map[string]string{"Role": r.namespace}[kind]
					names = fmt.Sprintf("rbac.authorization.k8s.io/v1 %s %s/%s", kind, namespace, at(t, object, "roleRef", "name"))
				}
				if got[names] == nil {
					t.Errorf("%s names %s, which is not there", key, names)
				}
			}
		}
	}
}

func TestTheVolumePolicyBindsTheReleasesServiceAccount(t *testing.T) {
	const key = "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy /ours-memcached-operator-volumes"
	for name, test := range map[string]struct {
		set  []string
		want string
	}{
		"its own":  {nil, "['system:serviceaccount', 'caching', 'ours-memcached-operator-controller-manager'].join(':')"},
		"another":  {[]string{"serviceAccount.create=false", "serviceAccount.name=system"}, "['system:serviceaccount', 'caching', 'system'].join(':')"},
		"switched": {[]string{"volumePolicy.enabled=false"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := rendered(t, others(t, test.set...), "")[key]
			if test.want == "" {
				if policy != nil {
					t.Error("there is one")
				}
				return
			}
			if got := at(t, policy, "spec", "matchConditions", 0, "expression"); got != "request.userInfo.username == "+test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestValuesReachTheManager(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	manager := func(set ...string) any {
		return at(t, rendered(t, others(t, set...), "")["apps/v1 Deployment caching/ours-memcached-operator-manager"], "spec")
	}
	for name, test := range map[string]struct {
		set  string
		path []any
		want any
	}{
		"the chart's version":  {"replicas=1", []any{"template", "spec", "containers", 0, "image"}, "example.com/memcached-operator:dev"},
		"image.tag":            {"image.tag=v7", []any{"template", "spec", "containers", 0, "image"}, "example.com/memcached-operator:v7"},
		"image.digest":         {"image.tag=v7,image.repository=r/i,image.digest=" + digest, []any{"template", "spec", "containers", 0, "env", 1, "value"}, "r/i@" + digest},
		"replicas":             {"replicas=2", []any{"replicas"}, "2"},
		"tolerations":          {"tolerations[0].key=k", []any{"template", "spec", "tolerations", 0, "key"}, "k"},
		"affinity":             {"affinity.nodeAffinity.x=y", []any{"template", "spec", "affinity", "nodeAffinity", "x"}, "y"},
		"nodeSelector":         {"nodeSelector.disk=ssd", []any{"template", "spec", "nodeSelector", "disk"}, "ssd"},
		"podAnnotations":       {"podAnnotations.a=b", []any{"template", "metadata", "annotations", "a"}, "b"},
		"podLabels":            {"podLabels.a=b", []any{"template", "metadata", "labels", "a"}, "b"},
		"serviceAccount.name":  {"serviceAccount.name=robot", []any{"template", "spec", "serviceAccountName"}, "robot"},
		"metrics.certSecret":   {"metrics.certSecret=cert", []any{"template", "spec", "volumes", 0, "secret", "secretName"}, "cert"},
		"the release's labels": {"replicas=1", []any{"selector", "matchLabels", "app.kubernetes.io/instance"}, "ours"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := at(t, manager(test.set), test.path...); fmt.Sprint(got) != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWrongValuesAreRefusedByName(t *testing.T) {
	for name, test := range map[string]struct{ set, want string }{
		"an unknown name":           {"replica=2", "replica"},
		"an unknown nested name":    {"uninstall.timeout=3", "timeout"},
		"today's image":             {"image=a/b:c", "image"},
		"a word":                    {"uninstall.memcacheds=Forget", "'Keep', 'Delete'"},
		"a text for a number":       {"replicas=two", "replicas"},
		"a digest without sha256":   {"image.digest=abc", "digest"},
		"no account, and no name":   {"serviceAccount.create=false", "serviceAccount/name"},
		"a label that selects":      {"podLabels.app\\.kubernetes\\.io/name=x", "app.kubernetes.io/name"},
		"an invalid argument":       {"args={debug}", "args"},
		"an address without a mask": {"networkPolicy.egress.apiServer.cidrs={10.0.0.1}", "cidrs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := others(t, test.set).render(chartDir, "")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
}

func TestDifferencesAreTold(t *testing.T) {
	parse := func(text string) map[string]map[string]any {
		o, err := objects([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const one = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec: {ports: [{port: 1}]}\n"
	for name, test := range map[string]struct {
		got  string
		want []string
	}{
		"the same":                {one, nil},
		"the same in other words": {"---\n# said otherwise\nkind: Service\napiVersion: v1\nspec:\n  ports:\n    - port: 1\nmetadata:\n  namespace: ns\n  name: a\n", nil},
		"another value":           {"apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec: {ports: [{port: 2}]}\n", []string{"v1 Service ns/a.spec.ports: -[map[port:1]] +[map[port:2]]"}},
		"one more field":          {one + "status: {}\n", []string{"v1 Service ns/a.status: -<nil> +map[]"}},
		"one object more":         {one + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", []string{"+ v1 Secret /s"}},
		"none":                    {"", []string{"- v1 Service ns/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compare(parse(one), parse(test.got)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The chart has the objects of config/prometheus, for people who use Helm.
func TestTheChartHasTheMonitorsTheAlertsAndTheDashboards(t *testing.T) {
	r := release{name: "memcached-operator", namespace: "memcached-operator-system", values: map[string]any{}}
	for _, s := range []string{"metrics.certSecret=memcached-operator-metrics-cert", "metrics.serviceMonitor.enabled=true", "metrics.podMonitors.enabled=true", "metrics.rules.enabled=true",
		"metrics.dashboards.enabled=true", "metrics.serviceMonitor.labels.team=shop"} {
		if err := strvals.ParseInto(s, r.values); err != nil {
			t.Fatal(err)
		}
	}
	got := rendered(t, r, "")
	monitors, err := os.ReadFile("../../config/prometheus/podmonitors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects(monitors)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d PodMonitors, %v", len(all), err)
	}
	for _, want := range all {
		key := fmt.Sprintf("monitoring.coreos.com/v1 PodMonitor memcached-operator-system/memcached-operator-%v", at(t, want, "metadata", "name"))
		if !reflect.DeepEqual(at(t, got[key], "spec"), want["spec"]) {
			t.Errorf("%s: the chart has\n%v\nconfig/prometheus has\n%v", key, got[key], want)
		}
	}
	for key, file := range map[string]string{
		"monitoring.coreos.com/v1 ServiceMonitor memcached-operator-system/memcached-operator-controller-manager-metrics": "monitor.yaml",
		"monitoring.coreos.com/v1 PrometheusRule memcached-operator-system/memcached-operator-alerts":                     "prometheusrule.yaml",
	} {
		text, err := os.ReadFile("../../config/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := objects(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !reflect.DeepEqual(at(t, got[key], "spec"), w["spec"]) {
				t.Errorf("%s: the chart has\n%v\nconfig/prometheus has\n%v", key, got[key], w)
			}
		}
	}
	monitor := got["monitoring.coreos.com/v1 ServiceMonitor memcached-operator-system/memcached-operator-controller-manager-metrics"]
	if team := at(t, monitor, "metadata", "labels", "team"); team != "shop" {
		t.Errorf("the monitor's label is %v", team)
	}
	dashboards := at(t, got["v1 ConfigMap memcached-operator-system/memcached-operator-dashboard"], "data").(map[string]any)
	for key, file := range map[string]string{"memcached-operator.json": "dashboard.json", "memcached-routers.json": "routers.json"} {
		want, err := os.ReadFile("../../config/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(fmt.Sprint(dashboards[key])) != strings.TrimSpace(string(want)) {
			t.Errorf("%s is not %s", key, file)
		}
	}
}

func TestNamesFollowTheConvention(t *testing.T) {
	for name, want := range map[string]string{
		"nameOverride=": "ours-memcached-operator-manager", "nameOverride=caches": "ours-caches-manager",
		"nameOverride=our": "ours-manager", "fullnameOverride=caches": "caches-manager",
	} {
		got := rendered(t, others(t, name), "")
		deployment := got["apps/v1 Deployment caching/"+want]
		if deployment == nil {
			t.Errorf("%s: no Deployment %s in %q", name, want, slices.Sorted(maps.Keys(got)))
			continue
		}
		if fmt.Sprint(at(t, deployment, "spec", "selector", "matchLabels")) != fmt.Sprint(at(t, deployment, "spec", "template", "metadata", "labels")) {
			t.Errorf("%s: the Deployment selects other pods than its own", name)
		}
	}
}

// The name of a Service, and of a Job, has 63 characters at most: the API server would refuse the metrics' Service, or the
// Job of helm uninstall.
func TestANameThatIsTooLongIsRefusedAtOnce(t *testing.T) {
	r := others(t)
	r.name = "production-of-the-shop"
	if _, err := r.render(chartDir, ""); err == nil || !strings.Contains(err.Error(), "fullnameOverride") {
		t.Errorf("a long name: %v", err)
	}
	r.values["fullnameOverride"] = strings.Repeat("n", 36)
	for _, hook := range []string{"", "pre-delete"} {
		for key := range rendered(t, r, hook) {
			bounded := strings.Contains(key, " Service ") || strings.Contains(key, " Job ")
			if name := key[strings.LastIndex(key, "/")+1:]; bounded && len(name) > 63 {
				t.Errorf("%s has a name of %d characters", key, len(name))
			}
		}
	}
}

func TestADisruptionBudgetNeedsTwoManagers(t *testing.T) {
	if _, err := others(t, "podDisruptionBudget.enabled=true").render(chartDir, ""); err == nil || !strings.Contains(err.Error(), "replicas: 2") {
		t.Errorf("one manager: %v", err)
	}
	got := rendered(t, others(t, "podDisruptionBudget.enabled=true", "replicas=2"), "")
	if got["policy/v1 PodDisruptionBudget caching/ours-memcached-operator-manager"] == nil {
		t.Errorf("no budget in %q", slices.Sorted(maps.Keys(got)))
	}
}
