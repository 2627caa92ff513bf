package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

// Marks of what must not be in the archive.
const markedValue, markedKey, markedPassword = "MARKED-VALUE", "MARKED-KEY", "MARKED-PASSWORD"

func marked() *Contents {
	m := apitest.MakeMemcached("cache").Namespace("shop").Storage("1Gi").Obj()
	m.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"podTemplate":{"env":[{"value":"` + markedPassword + `"}]}}}`,
		cachev1alpha1.AnnotationOperator:                   "operators/memcached-operator",
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: markedPassword}}
	m.Spec.PodTemplate.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: markedPassword}}
	m.Spec.PodTemplate.Containers = []corev1.Container{{Name: "sidecar", Image: "sidecar:1", Args: []string{"--password=" + markedPassword}}}
	m.Status.Conditions = []metav1.Condition{
		{Type: "Degraded", Reason: cachev1alpha1.ReasonCrashLoop, Message: "container memcached ends again and again: <28 get " + markedKey},
		{Type: "Moving", Reason: cachev1alpha1.ReasonMoveFailed, Message: `member 1: key "` + markedKey + `" does not fit the text protocol; pod "cache-0" is there`},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-0"}}
	pod.Spec.Containers = []corev1.Container{
		{Name: "memcached", Command: []string{"/supervisor/drainer", "supervise", "--", "memcached", "-m", "64"}, Env: m.Spec.PodTemplate.Env},
		{Name: "sidecar", Command: []string{markedPassword}},
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "memcached", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: ">28 " + markedValue}}},
		{Name: "drainer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"found":12,"message":"key \"` + markedKey + `\" is too large"}`}}},
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return &Contents{
		Owner: m, Objects: []client.Object{pod},
		Lines: []kube.Line{
			{At: at, From: "Memcached/cache", Text: "Scaling 3 to 2", Event: true},
			{At: at, From: "Pod/cache-0", Text: "Unhealthy Readiness probe failed: VALUE " + markedKey + " " + markedValue, Event: true},
			{At: at, From: "cache-0/memcached", Text: "<28 set " + markedKey + " 0 0 12", Program: "memcached"},
			{At: at, From: "cache-0/memcached", Text: "drainer: the cache is saved, 12 items", Program: "memcached"},
			{At: at, From: "cache-0/memcached", Text: `{"looks like":"` + markedValue + `"}`, Program: "memcached"},
			{At: at, From: "cache-0/sidecar", Text: "drainer: password " + markedPassword},
			{At: at, From: "drain/drainer", Text: `drainer: key "` + markedKey + `" is too large`, Program: "drainer"},
			{At: at, From: "drain/drainer", Text: `{"itemsDone":12,"message":"unexpected answer: \"VA 12 ` + markedValue + `\""}`, Program: "drainer"},
			{At: at, From: "manager-1/manager", Text: `{"msg":"The drain failed","namespace":"shop","name":"cache","error":"key \"` + markedKey + `\" is too large"}`, Program: "manager"},
		},
		Statistics: map[string]map[string]string{"cache-0": {"curr_items": "12", "version": "1.6.18", "auth_file": markedPassword, markedKey: "1"}},
		Missing:    []string{`secrets "` + markedPassword + `" is forbidden`},
	}
}

func TestAnArchiveHasNoValueNoKeyAndNoSecret(t *testing.T) {
	drain := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: "shop"}}
	drain.Spec.Template.Spec = runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"drain","image":"drain:1","args":["` + markedPassword + `"],"env":[{"name":"A","value":"` + markedPassword + `"}]}]}`)}
	drain.Status.LastDrains = []cachev1alpha1.MemberDrained{{Result: "Drained", Message: "gave " + markedKey}}
	drain.Status.Drains = []cachev1alpha1.MemberDrain{{Message: "its drainer said " + markedValue}}
	others := &Contents{Owner: drain, Lines: []kube.Line{
		{From: "StatefulSetDrain/queue", Text: "DrainFailed its drainer said " + markedValue, Event: true},
		{From: "manager-1/manager", Text: `{"error":"it said ` + markedValue + `"}`, Program: "manager"},
		{From: "drain/drain", Text: "drainer: " + markedValue},
	}}
	for name, test := range map[string]struct {
		contents *Contents
		has      []string
	}{
		"Memcached": {marked(), []string{
			"Scaling 3 to 2", "the cache is saved, 12 items", `"itemsDone":12`, "The drain failed", "curr_items", "1.6.18", "sidecar:1", `pod "cache-0" is there`,
			`"found":12`, "operators/memcached-operator", "PASSWORD", "is forbidden", "--", "MoveFailed",
		}},
		"StatefulSetDrain": {others, []string{"DrainFailed", "drain:1", "Drained"}},
	} {
		t.Run(name, func(t *testing.T) {
			var written bytes.Buffer
			if err := test.contents.Write(&written, time.Now()); err != nil {
				t.Fatal(err)
			}
			text := read(t, written.Bytes())
			for _, mark := range []string{markedValue, markedKey, markedPassword} {
				for line := range strings.Lines(text) {
					if strings.Contains(line, mark) {
						t.Errorf("%s is in the archive: %s", mark, line)
					}
				}
			}
			text = strings.ReplaceAll(text, `\"`, `"`)
			for _, part := range test.has {
				if !strings.Contains(text, part) {
					t.Errorf("the archive lacks %s:\n%s", part, text)
				}
			}
		})
	}
}

// read returns names and contents of all files.
func read(t *testing.T, archive []byte) string {
	t.Helper()
	var text strings.Builder
	in := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(header.Name + "\n")
		if _, err := io.Copy(&text, in); err != nil {
			t.Fatal(err)
		}
	}
}
