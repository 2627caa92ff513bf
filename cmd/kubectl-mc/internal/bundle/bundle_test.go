package bundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
)

// mark is a value, a key, a password.
const mark = "MARQUED"

// fill writes the mark into each string of the object, and into each name in a map.
func fill(v reflect.Value) {
	switch raw, is := v.Addr().Interface().(*runtime.RawExtension); {
	case is:
		pod := corev1.PodSpec{}
		fill(reflect.ValueOf(&pod).Elem())
		raw.Raw, _ = json.Marshal(pod)
		return
	case v.Type() == reflect.TypeFor[metav1.Time](), v.Type() == reflect.TypeFor[metav1.MicroTime](), v.Type() == reflect.TypeFor[resource.Quantity](),
		v.Type() == reflect.TypeFor[intstr.IntOrString](), v.Type() == reflect.TypeFor[metav1.FieldsV1]():
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(mark)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(mark))
			return
		}
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(mark).Convert(v.Type().Key()), value)
	}
}

// filled returns an object that has the mark everywhere but in the names that are known by it.
func filled(o client.Object) client.Object {
	fill(reflect.ValueOf(o).Elem())
	o.SetName("cache")
	o.SetNamespace("shop")
	o.SetUID("uid-of-cache")
	yes := true
	o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Memcached", Name: "cache", UID: "uid-of-cache", Controller: &yes}})
	annotations := o.GetAnnotations()
	for name := range fieldsOf(kept[kindOf(o)], "metadata", "annotations") {
		annotations[name] = mark
	}
	annotations["kubectl.kubernetes.io/last-applied-configuration"] = mark
	switch o := o.(type) {
	case *corev1.Pod:
		o.Spec.NodeName = "node-1"
	case *cachev1alpha1.Memcached:
		o.Status.Servers = []string{"cache-0.cache.shop.svc:11211"}
	}
	return o
}

func fieldsOf(f fields, path ...string) fields {
	for _, name := range path {
		f = f[name].(fields)
	}
	return f
}

// chosen are the fields whose values Kubernetes, the operator or the administrator names, and no application.
var chosen = strings.Fields(`
	apiVersion kind name image imagePullPolicy type phase reason status result mode client addresses moves failedReads policy whenDeleted onUnrecoverable
	onShortage clientAuth secretName storageClassName volumeName volumeMode claimName accessModes restartPolicy serviceAccountName priorityClassName
	schedulerName runtimeClassName spread protocol podIP hostIP qosClass resourceVersion uid nodes behind address serviceMonitor claim claims claimUID statefulSetName
	progress leftOver serviceName podManagementPolicy currentRevision updateRevision whenScaled clusterIP clusterIPs ipFamilies ipFamilyPolicy addressType
	hostname nodeName policyTypes podReplacementPolicy`)

func TestAnArchiveHasOnlyFieldsThatAreKnown(t *testing.T) {
	objects := []client.Object{
		&cachev1alpha1.Memcached{}, &cachev1alpha1.StatefulSetDrain{}, &appsv1.StatefulSet{}, &appsv1.Deployment{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &batchv1.Job{},
		&corev1.ConfigMap{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{},
	}
	for i := range objects {
		objects[i] = filled(objects[i])
	}
	var written bytes.Buffer
	if err := (&Contents{Owner: objects[0], Objects: objects[1:]}).Write(&written, time.Now()); err != nil {
		t.Fatal(err)
	}
	files := read(t, written.Bytes())
	if len(files) != len(objects)+2 {
		t.Errorf("the archive has %d files", len(files))
	}
	for name, text := range files {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil && strings.HasSuffix(name, ".yaml") {
			t.Fatalf("%s: %v", name, err)
		}
		for _, path := range marks(v) {
			if !slices.Contains(chosen, path[strings.LastIndexByte(path, '.')+1:]) {
				t.Errorf("%s: %s has the mark", name, path)
			}
		}
		for _, secret := range []string{"env", "containers", "annotations"} {
			if strings.HasSuffix(name, "/pod-cache.yaml") && !strings.Contains(text, secret+":") {
				t.Errorf("%s has no %s: nothing is tested", name, secret)
			}
		}
	}
}

// marks are the paths of fields that have the mark, or are named by it.
func marks(v any) (paths []string) {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, mark) {
			return []string{""}
		}
	case []any:
		for _, one := range v {
			paths = append(paths, marks(one)...)
		}
	case map[string]any:
		for name, value := range v {
			if strings.Contains(name, mark) {
				paths = append(paths, ".a name")
			}
			for _, path := range marks(value) {
				paths = append(paths, strings.TrimSuffix("."+name+path, "."))
			}
		}
	}
	return paths
}

func at(l kube.Line) kube.Line {
	l.At = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return l
}

func TestAnArchiveHasNoValueNoKeyAndNoSecret(t *testing.T) {
	m := apitest.MakeMemcached("cache").Namespace("shop").Storage("1Gi").Obj()
	m.Annotations = map[string]string{
		cachev1alpha1.AnnotationOperator:     "operators/memcached-operator",
		cachev1alpha1.AnnotationReceipt:      `{"found":12,"message":"it gave ` + mark + `","` + mark + `":1}`,
		"cache.example.com/note-of-a-person": mark,
	}
	m.Spec.PodTemplate.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: mark}}
	m.Status.Conditions = []metav1.Condition{
		{Type: "Degraded", Reason: cachev1alpha1.ReasonCrashLoop, Message: "container memcached ends again and again: <28 get " + mark + " 12345"},
		{Type: "Moving", Reason: cachev1alpha1.ReasonMoveFailed, Message: `member 1: key "` + mark + `" does not fit the text protocol; pod "cache-0" is there`},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-0"}}
	pod.Spec.Containers = []corev1.Container{{Name: "memcached", Env: m.Spec.PodTemplate.Env}, {Name: "sidecar", Image: "sidecar:1", Command: []string{mark}}}
	drain := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: "shop"}}
	drain.Spec.Template.Spec = runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"drain","image":"drain:1","args":["` + mark + `"],"env":[{"name":"A","value":"` + mark + `"}]}]}`)}
	drain.Status.LastDrains = []cachev1alpha1.MemberDrained{{Result: "Drained", Message: "it gave 12 to " + mark}}
	drain.Status.Drains = []cachev1alpha1.MemberDrain{{Message: "its drainer said " + mark}}

	drained := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-queue-2", Annotations: map[string]string{
		cachev1alpha1.AnnotationReceipt: `{"result":"Drained","message":"it gave 12 again"}`, cachev1alpha1.AnnotationDrain: "retry",
	}}}

	for name, test := range map[string]struct {
		contents  *Contents
		has, lack []string
	}{
		"Memcached": {
			&Contents{
				Owner: m, Objects: []client.Object{pod},
				Lines: []kube.Line{
					{From: "Memcached/cache", Text: "Scaling from 3 to 2", Event: true, Program: "manager"},
					{From: "Pod/cache-0", Text: "Unhealthy Readiness probe failed: VALUE " + mark + " again", Event: true},
					{From: "Pod/cache-0", Text: "BackOff restarting failed container: again " + mark, Event: true},
					{From: "Pod/cache-0", Text: mark + "1 again", Event: true},
					{From: "cache-0/memcached", Text: "<28 set " + mark + " 0 0 12", Program: "memcached"},
					{From: "cache-0/memcached", Text: "drainer: the cache is saved, 12 items", Program: "memcached"},
					{From: "cache-0/memcached", Text: `{"message":"` + mark + `"}`, Program: "memcached"},
					{From: "cache-0/memcached", Text: "--- 12 older lines of this log are left out ---", Program: "memcached", Cut: true},
					{From: "cache-0/sidecar", Text: "drainer: password " + mark},
					{From: "drain/drainer", Text: `drainer: key "` + mark + `" is too large`, Program: "drainer"},
					{From: "drain/drainer", Text: `{"itemsDone":12000,"message":"unexpected answer: \"VA 12 ` + mark + `\""}`, Program: "drainer"},
					{From: "drain/drainer", Text: `{"itemsDone":12,"message":"key \"a\" and ` + mark, Program: "drainer"},
					{From: "drain/drainer", Text: ` a key","key \" ` + mark + ` \" is too large"`, Program: "drainer"},
					{From: "manager-1/manager", Text: `{"msg":"The drain failed","namespace":"shop","name":"cache","error":"key \"` + mark + `\" is too large","` + mark + `":"now"}`, Program: "manager"},
					{From: "manager-1/manager", Text: `{"msg":"Refused","error":"admission webhook denied the request: the value of PIN is 31415 or ` + mark + `"}`, Program: "manager"},
				},
				Statistics: map[string]map[string]string{"cache-0": {"curr_items": "12", "version": "1.6.18", "auth_file": mark, mark: "1"}},
				Missing:    []string{`secrets "` + mark + `" is forbidden`},
			},
			[]string{
				"Scaling from 3 to 2", "the cache is saved, 12 items", `"itemsDone":12000`, "The drain failed", "curr_items", "1.6.18", "sidecar:1", `pod "cache-0" is there`,
				`"found":12`, "PASSWORD", "is forbidden", "MoveFailed", "CrashLoop", "Unhealthy\n", "BackOff\n", "12 older lines", "is too large", "denied the request",
			},
			[]string{"31415", "12345", "failed container", "of-a-person"},
		},
		"StatefulSetDrain": {
			&Contents{Owner: drain, Objects: []client.Object{drained}, Lines: []kube.Line{
				{From: "StatefulSetDrain/queue", Text: "DrainFailed its drainer said again " + mark, Event: true, Program: "manager"},
				{From: "manager-1/manager", Text: `{"error":"it said again ` + mark + `"}`, Program: "manager"},
				{From: "drain/drain", Text: "drainer: again " + mark},
			}},
			[]string{"DrainFailed\n", "drain:1", "Drained", "retry"},
			[]string{"again", "gave", "said"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.contents.Lines {
				test.contents.Lines[i] = at(test.contents.Lines[i])
			}
			var written bytes.Buffer
			if err := test.contents.Write(&written, time.Now()); err != nil {
				t.Fatal(err)
			}
			text := ""
			for name, file := range read(t, written.Bytes()) {
				text += name + "\n" + file
			}
			for line := range strings.Lines(text) {
				for _, lacked := range append(test.lack, mark) {
					if strings.Contains(line, lacked) {
						t.Errorf("%s is in the archive: %s", lacked, line)
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

// Other applications of the namespace may have a similar name.
func TestAnArchiveOfAStatefulSetDrainHasItsObjectsAlone(t *testing.T) {
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Name: "drain-of-db"}}
	d.Spec.StatefulSetName = "db"
	named := func(o client.Object, name string, labels map[string]string, by string) client.Object {
		yes := true
		o.SetName(name)
		o.SetLabels(labels)
		if by != "" {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "StatefulSet", Name: by, Controller: &yes}})
		}
		return o
	}
	ours := map[string]string{cachev1alpha1.LabelStatefulSetDrain: "drain-of-db"}
	for _, test := range []struct {
		o    client.Object
		want bool
	}{
		{named(&appsv1.StatefulSet{}, "db", nil, ""), true},
		{named(&appsv1.StatefulSet{}, "db-of-others", nil, ""), false},
		{named(&corev1.Pod{}, "db-0", nil, "db"), true},
		{named(&corev1.Pod{}, "db-of-others-0", nil, "db-of-others"), false},
		{named(&corev1.Pod{}, "db-frontend", nil, ""), false},
		{named(&corev1.Pod{}, "data-db-2-drain-12345678-x", ours, ""), true},
		{named(&batchv1.Job{}, "data-db-2-drain-12345678", ours, ""), true},
		{named(&batchv1.Job{}, "db-backup", nil, ""), false},
		{named(&corev1.PersistentVolumeClaim{}, "data-db-0", nil, ""), true},
		{named(&corev1.PersistentVolumeClaim{}, "data-db-2-aside-1", ours, ""), true},
		{named(&corev1.PersistentVolumeClaim{}, "data-db-of-others-0", nil, ""), false},
		{named(&corev1.Service{}, "db-frontend", nil, ""), false},
		{named(&appsv1.Deployment{}, "db-frontend", nil, ""), false},
	} {
		if got := belongs(test.o, d); got != test.want {
			t.Errorf("%T %s belongs to it: %t", test.o, test.o.GetName(), got)
		}
	}
}

// The words of the operator's messages are those of the documentation.
func TestAMessageOfTheOperatorStays(t *testing.T) {
	known := Known{"data-cache-2": true, "cache-2": true}
	for _, message := range []string{
		"remove the annotation cache.example.com/drain=hold to start the drain",
		"claim data-cache-2: ReceiptInvalid: the receipt does not add up",
		"pod cache-2 has been waiting for 10m30s, since 2030-01-02T03:04:05Z: still called by 10.1.2.3",
		"member 2 is told to leave (3 of 4 are ready); 192Mi of memory, 12.5%",
	} {
		if got := known.Text(message); got != message {
			t.Errorf("of %q\n%q stays", message, got)
		}
	}
	if got, want := known.Text(`it said user:1234 hunter2 12345, then "again" and then s3cr3t.`), "it said … then … and then …"; got != want {
		t.Errorf("%q stays, want %q", got, want)
	}
}

// read returns the contents of all files, by name.
func read(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	in := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}
