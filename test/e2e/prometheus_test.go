package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

const monitoring = "../../config/prometheus/"

// panels of a dashboard, by row and title: their queries.
func panels(t *testing.T, file string) map[[2]string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(monitoring + file)
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, row := map[[2]string][]string{}, ""
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		for _, target := range p.Targets {
			key := [2]string{row, p.Title}
			all[key] = append(all[key], target.Expr)
		}
	}
	return all
}

// TestEachPanelHasData of a real cluster with members that evict, have resumed and have shrunk to two, in a real
// Prometheus with the configuration of docs/guides/prometheus.md. If PANELS names a folder, panels are drawn there.
func TestEachPanelHasData(t *testing.T) {
	tier.Second(t, "TestMetricsAreServedToThoseWhoMayReadThemOnly")
	t.Parallel()
	f := inNamespace(t)
	spec := roomForSome(routed(3))
	spec.Metrics = &cachev1alpha1.MetricsSpec{}
	spec.Router.Replicas = ptr.To[int32](2)
	f.create(spec)
	f.routersReady(2)
	p := f.startPrometheus()
	f.applicationOf(f.routerService(), 100)

	was := f.pod(0)
	f.must(kube.Delete(f.ctx, was)) // it resumes
	f.replaced(was)
	f.scale(2)
	f.settled(2)
	f.applicationOf(f.routerService(), 200_000)
	for _, file := range []string{"dashboard.json", "routers.json"} {
		all := panels(t, file)
		for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
			for _, query := range all[key] {
				// The other rows tell of drains, and of all clusters; and these routers ask no other cache.
				must := file == "routers.json" || strings.HasPrefix(key[0], "Members") || key[0] == "Routers"
				must = must && !strings.Contains(query, "memcached_router_source_")
				p.hasData(f, fmt.Sprintf("%s, %s, %s", file, key[0], key[1]), query, must)
			}
		}
	}
	p.rulesWork(f)
	if folder := os.Getenv("PANELS"); folder != "" {
		p.draw(f, folder)
	}
}

// draw draws panels for the docs.
func (p prometheus) draw(f *fixture, folder string) {
	f.Helper()
	cmd := exec.CommandContext(f.ctx, "go", "run", "./hack/panels", "--last=2m", "--rows=^(Members|Routers)",
		"--set=namespace="+f.namespace, "--set=name="+f.name, string(p), "config/prometheus/dashboard.json", folder)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	f.Logf("%s", out)
	f.must(err)
	drawn, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	f.must(err)
	for _, file := range drawn {
		text, err := os.ReadFile(file)
		f.must(err)
		f.must(os.WriteFile(file, bytes.ReplaceAll(text, []byte(f.namespace), []byte("shop")), 0o644))
	}
}

// prometheus is one that runs, by the address of its API.
type prometheus string

// startPrometheus starts Debian's, with the configuration of the guide, as one outside of the cluster.
func (f *fixture) startPrometheus() prometheus {
	f.Helper()
	dir := f.TempDir()
	var config map[string]any
	for _, g := range guides(f.T) {
		if g.name == "prometheus" {
			f.must(yaml.Unmarshal([]byte(g.files["prometheus.yaml"]), &config))
		}
	}
	config["global"] = map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
	token := filepath.Join(dir, "token")
	f.must(os.WriteFile(token, []byte(f.metricsReader()), 0o600))
	targets := filepath.Join(dir, "targets.json")
	for _, job := range config["scrape_configs"].([]any) {
		job := job.(map[string]any)
		// Debian's Prometheus can't ask Kubernetes.
		delete(job, "kubernetes_sd_configs")
		job["file_sd_configs"] = []any{map[string]any{"files": []string{targets}}}
		if authorization, is := job["authorization"].(map[string]any); is {
			authorization["credentials_file"] = token
		}
	}
	text, err := yaml.Marshal(config)
	f.must(err)
	f.must(os.WriteFile(filepath.Join(dir, "prometheus.yaml"), text, 0o644))
	rules, err := os.ReadFile(monitoring + "rules.yaml")
	f.must(err)
	f.must(os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o644))

	f.discover(targets)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	address := listener.Addr().String()
	f.must(listener.Close())
	var log bytes.Buffer
	ctx, stop := context.WithCancel(f.ctx)
	program := exec.CommandContext(ctx, os.Getenv("PROMETHEUS"), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	program.Stdout, program.Stderr = &log, &log
	f.must(program.Start())
	done := make(chan struct{})
	go func() { defer close(done); _ = program.Wait() }()
	f.Cleanup(func() {
		stop()
		<-done
		if f.Failed() {
			f.Logf("prometheus: %s", log.String()[max(0, log.Len()-4000):])
		}
	})
	p := prometheus("http://" + address)
	f.eventually("Prometheus is ready", func() bool {
		select {
		case <-done:
			f.Fatal("it has ended")
		default:
		}
		return p.get("/-/ready", nil) == nil
	})
	return p
}

// target is an entry of a file of Prometheus'.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// discover writes the ports of all pods of the test and of the operator, with the labels that Prometheus gives them
// when it asks Kubernetes, until the test ends.
func (f *fixture) discover(file string) {
	write := func(ctx context.Context) error {
		all := []target{}
		for _, namespace := range []string{f.namespace, operatorNamespace} {
			var pods corev1.PodList
			if err := kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
				return err
			}
			for _, pod := range pods.Items {
				labels := map[string]string{"__meta_kubernetes_namespace": namespace, "__meta_kubernetes_pod_name": pod.Name}
				for name, value := range pod.Labels {
					labels["__meta_kubernetes_pod_label_"+strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(name)] = value
				}
				for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
					for _, port := range container.Ports {
						t := target{Targets: []string{fmt.Sprintf("%s:%d", pod.Status.PodIP, port.ContainerPort)}, Labels: maps.Clone(labels)}
						t.Labels["__meta_kubernetes_pod_container_port_name"] = port.Name
						if pod.Status.PodIP != "" {
							all = append(all, t)
						}
					}
				}
			}
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+".new.json", text, 0o644); err != nil {
			return err
		}
		return os.Rename(file+".new.json", file)
	}
	f.must(write(f.ctx))
	ctx, stop := context.WithCancel(f.ctx)
	done := make(chan struct{})
	f.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for range time.Tick(time.Second) {
			if ctx.Err() != nil {
				return
			}
			if err := write(ctx); err != nil && ctx.Err() == nil {
				f.Logf("pods for Prometheus: %v", err)
			}
		}
	}()
}

// get reads an answer of the API into a value.
func (p prometheus) get(path string, into any) error {
	response, err := http.Get(string(p) + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// hasData asks a panel's query. If it must have data, hasData waits for numbers.
func (p prometheus) hasData(f *fixture, panel, query string, must bool) {
	f.Helper()
	query = strings.NewReplacer("$__rate_interval", "20s", "$namespace", f.namespace, "$name", f.name, "$kind", "Memcached").Replace(query)
	wait.For(f.T, panel, func() error {
		var answer struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
			f.Fatalf("%s: %v", panel, err)
		}
		for _, series := range answer.Data.Result {
			if number, _ := series.Value[1].(string); number != "" && number != "NaN" {
				return nil
			}
		}
		if !must {
			f.Logf("%s has no data here", panel)
			return nil
		}
		return fmt.Errorf("no data: %s: %v", query, answer.Data.Result)
	})
}

// rulesWork expects that Prometheus could evaluate each alert.
func (p prometheus) rulesWork(f *fixture) {
	f.Helper()
	wait.For(f.T, "each alert was evaluated", func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := p.get("/api/v1/rules", &answer); err != nil {
			return err
		}
		rules := 0
		for _, group := range answer.Data.Groups {
			for _, rule := range group.Rules {
				if rules++; rule.Health != "ok" {
					return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		if rules < 10 {
			return fmt.Errorf("%d rules", rules)
		}
		return nil
	})
}

// applicationOf runs an application at the routers' address until the test ends. The application has hits,
// misses and errors, and stores new values of so many bytes all the time.
func (f *fixture) applicationOf(address string, size int) {
	library := memcache.New(address)
	library.Timeout = time.Minute
	ctx, stop := context.WithCancel(f.ctx)
	done := make(chan struct{})
	f.Cleanup(func() {
		stop()
		<-done
		_ = library.Close()
	})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			err := errors.Join(
				library.Set(&memcache.Item{Key: fmt.Sprintf("value-%d-%d", size, i), Value: make([]byte, size)}),
				library.Set(&memcache.Item{Key: "word", Value: []byte("hello")}))
			_, hit := library.Get("word")
			_, miss := library.Get("nothing")
			_, wrong := library.Increment("word", 1) // an error each time
			if err != nil || hit != nil || miss == nil || wrong == nil {
				f.Logf("the application: %v, %v, %v, %v", err, hit, miss, wrong) // a member restarts
			}
			time.Sleep(10 * time.Millisecond) // what is evicted was not used for a second or more
		}
	}()
}
