package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const operatorNamespace = "memcached-operator-system"

func TestMetricsAreServedToThoseWhoMayReadThemOnly(t *testing.T) {
	f := onCluster(t)
	var pods corev1.PodList
	f.must(kube.List(f.ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": "memcached-operator"}))
	url := fmt.Sprintf("https://%s:8443/metrics", running(t, pods.Items).Status.PodIP)
	f.expectStatus(url, "", http.StatusUnauthorized)
	_, stranger := f.account("stranger-")
	f.expectStatus(url, stranger, http.StatusForbidden)

	token := f.metricsReader()
	body := f.expectStatus(url, token, http.StatusOK)
	for _, name := range []string{"controller_runtime_reconcile_total", "memcached_operator_drains_total", "memcached_operator_drain_items_total"} {
		if !strings.Contains(body, name) {
			t.Errorf("no %s in the metrics:\n%s", name, body)
		}
	}
}

// metricsReader returns a token of an account that may read the manager's metrics, for the time of the test.
func (f *fixture) metricsReader() (token string) {
	f.Helper()
	reader, token := f.account("reader-")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reader},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "memcached-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: operatorNamespace, Name: reader}},
	}
	f.must(kube.Create(f.ctx, binding))
	f.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		_ = kube.Delete(ctx, binding)
	})
	return token
}

// account makes a service account for the time of the test, and a token for it.
func (f *fixture) account(prefix string) (name, token string) {
	f.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, GenerateName: prefix}}
	f.must(kube.Create(f.ctx, account))
	f.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		_ = kube.Delete(ctx, account)
	})
	request := &authenticationv1.TokenRequest{}
	f.must(kube.SubResource("token").Create(f.ctx, account, request))
	return account.Name, request.Status.Token
}

func running(t *testing.T, pods []corev1.Pod) *corev1.Pod {
	t.Helper()
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && ready(&pods[i]) {
			return &pods[i]
		}
	}
	t.Fatal("the operator does not run")
	return nil
}

// expectStatus asks until the answer has this status, because the API server's authorizer learns of a binding
// by a watch.
func (f *fixture) expectStatus(url, token string, want int) string {
	f.Helper()
	insecure := &http.Client{
		Transport: &http.Transport{DialContext: dialSoon, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // it signs its own certificate
	}
	defer insecure.CloseIdleConnections()
	var body string
	f.eventually(fmt.Sprintf("%s answers with %d", url, want), func() bool {
		request, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
		f.must(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := insecure.Do(request)
		if err != nil {
			f.Logf("%s: %v", url, err) // the manager may be about to listen
			return false
		}
		content, err := io.ReadAll(response.Body)
		f.must(err)
		_ = response.Body.Close()
		body = string(content)
		return response.StatusCode == want
	})
	return body
}
