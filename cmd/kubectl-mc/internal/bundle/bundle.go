// Package bundle makes an archive for support: objects, events, logs and statistics, without values, keys and
// secrets. The archive keeps fields by a table, words by the documentation, and names by the cluster.
package bundle

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/version"
)

// Contents are the parts of an archive.
type Contents struct {
	// Owner is the Memcached or the StatefulSetDrain.
	Owner client.Object
	// Objects are those that belong to the owner.
	Objects []client.Object
	// Lines are events and logs, by time.
	Lines []kube.Line
	// Statistics are those of its members, by pod and argument.
	Statistics map[string]map[string]string
	// Missing names the parts that could not be read.
	Missing []string
}

// Collect reads the objects that belong to the owner, and no Secret.
func Collect(ctx context.Context, s *kube.Session, owner client.Object) *Contents {
	c := &Contents{Owner: owner, Statistics: map[string]map[string]string{}}
	about := kube.About(owner)
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &batchv1.JobList{},
		&corev1.ConfigMapList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.NetworkPolicyList{},
	} {
		if err := s.List(ctx, list, client.InNamespace(owner.GetNamespace())); err != nil {
			c.Missing = append(c.Missing, err.Error())
			continue
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // the function returns no error
			object := o.(client.Object)
			if about(object.GetName()) && belongs(object, owner) {
				c.Objects = append(c.Objects, object)
			}
			return nil
		})
	}
	return c
}

// belongs tells whether the object is one that the operator makes or watches for the owner. Other objects may
// have a similar name.
func belongs(o, owner client.Object) bool {
	_, isMap := o.(*corev1.ConfigMap)
	labels := o.GetLabels()
	if d, is := owner.(*cachev1alpha1.StatefulSetDrain); is {
		return labels[cachev1alpha1.LabelStatefulSetDrain] == d.Name || belongsToSet(o, d.Spec.StatefulSetName)
	}
	return (!isMap || metav1.IsControlledBy(o, owner)) &&
		(labels[cachev1alpha1.LabelCluster] == owner.GetName() || labels[cachev1alpha1.LabelInstance] == owner.GetName() && labels[cachev1alpha1.LabelName] == cachev1alpha1.AppName)
}

// belongsToSet tells whether the object is the StatefulSet of this name, one of its pods, or a claim of its members.
func belongsToSet(o client.Object, set string) bool {
	switch o.(type) {
	case *appsv1.StatefulSet:
		return o.GetName() == set
	case *corev1.Pod:
		by := metav1.GetControllerOf(o)
		return by != nil && by.Kind == "StatefulSet" && by.Name == set
	case *corev1.PersistentVolumeClaim:
		_, after, found := strings.Cut(o.GetName(), "-"+set+"-")
		ordinal, _, _ := strings.Cut(after, "-")
		_, err := strconv.ParseUint(ordinal, 10, 31)
		return found && err == nil
	}
	return false
}

// known returns the names and UIDs of the objects, and of the objects that they name.
func (c *Contents) known() Known {
	known := Known{c.Owner.GetNamespace(): true}
	for _, o := range append([]client.Object{c.Owner}, c.Objects...) {
		kind, name := kindOf(o), o.GetName()
		known[name], known[string(o.GetUID())], known[kind+"/"+name], known[o.GetNamespace()+"/"+name] = true, true, true, true
		switch o := o.(type) {
		case *corev1.Pod:
			known[o.Spec.NodeName] = true
		case *cachev1alpha1.Memcached:
			for _, server := range o.Status.Servers {
				known[server] = true
			}
		}
	}
	return known
}

// Write writes the archive, without values, keys and secrets.
func (c *Contents) Write(w io.Writer, now time.Time) error {
	out := &archive{Writer: tar.NewWriter(w), dir: c.Owner.GetName() + "-support", now: now}
	known := c.known()
	_, others := c.Owner.(*cachev1alpha1.StatefulSetDrain)
	for _, o := range append([]client.Object{c.Owner}, c.Objects...) {
		if others { // a drainer of a person's has written it
			o = o.DeepCopyObject().(client.Object)
			delete(o.GetAnnotations(), cachev1alpha1.AnnotationReceipt)
		}
		if err := out.object(known, o); err != nil {
			return err
		}
	}
	log, leftOut := known.log(c.Lines, others)
	err := out.file("log.txt", log)
	for pod, all := range c.Statistics {
		text, failed := yaml.Marshal(Statistics(all))
		err = errors.Join(err, failed, out.file("stats/"+pod+".yaml", string(text)))
	}
	about := fmt.Sprintf("kubectl mc support-bundle of %s/%s, by version %s\n%d lines of other programs than the operator's are left out of log.txt,\n"+
		"and all that is not known to be harmless everywhere: %s stands for it in texts.\n", c.Owner.GetNamespace(), c.Owner.GetName(), version.String(), leftOut, hidden)
	for _, missing := range c.Missing {
		about += "not read: " + known.Text(missing) + "\n"
	}
	return errors.Join(err, out.file("README.txt", about), out.Close())
}

// log returns the lines that the operator's programs have written, and events. others means that the drainer
// is a person's, and the operator's lines about it may have its words.
func (k Known) log(lines []kube.Line, others bool) (text string, leftOut int) {
	var log strings.Builder
	for _, l := range lines {
		words := ""
		switch {
		case l.Event:
			why, more, _ := strings.Cut(l.Text, " ")
			if words = hidden; reason.MatchString(why) {
				words = why
			}
			if !others && l.Program != "" {
				words += " " + k.Text(more)
			}
		// memcached's own lines have keys when it is told to be verbose.
		case others, l.Program == "", l.Program == "memcached" && !l.Cut && !strings.HasPrefix(l.Text, "drainer: "):
			leftOut++
			continue
		case l.Cut:
			words = l.Text
		default:
			words = k.Line(l.Text)
		}
		fmt.Fprintf(&log, "%s %s %s\n", l.At.UTC().Format(time.RFC3339Nano), l.From, words)
	}
	return log.String(), leftOut
}

// archive is a tar with one folder.
type archive struct {
	*tar.Writer
	dir string
	now time.Time
}

func (a *archive) file(name, text string) error {
	const mode = 0o644
	err := a.WriteHeader(&tar.Header{Name: a.dir + "/" + name, Mode: mode, Size: int64(len(text)), ModTime: a.now})
	if err == nil {
		_, err = io.WriteString(a, text)
	}
	return err
}

func (a *archive) object(known Known, o client.Object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	kind := kindOf(o)
	cleaned, err := yaml.Marshal(kept[kind].of(v, known))
	if err != nil {
		return err
	}
	return a.file("objects/"+strings.ToLower(kind)+"-"+o.GetName()+".yaml", string(cleaned))
}

// kindOf is the name of the object's type, because an object of a list doesn't say its kind.
func kindOf(o client.Object) string {
	kind := fmt.Sprintf("%T", o)
	return kind[strings.LastIndexByte(kind, '.')+1:]
}

var value, statistic = regexp.MustCompile(`^[0-9.]{1,32}$`), regexp.MustCompile(`^[a-z0-9_:]{1,64}$`)

// Statistics keeps numbers and versions, because other statistics may have any text.
func Statistics(all map[string]string) map[string]string {
	kept := map[string]string{}
	for name, is := range all {
		if value.MatchString(is) && statistic.MatchString(name) {
			kept[name] = is
		}
	}
	return kept
}
