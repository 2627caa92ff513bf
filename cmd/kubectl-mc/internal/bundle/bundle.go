package bundle

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/version"
)

// Contents are what an archive is made of.
type Contents struct {
	// Owner is the Memcached or the StatefulSetDrain.
	Owner client.Object
	// Objects belong to it.
	Objects []client.Object
	// Lines are events and logs, by time.
	Lines []kube.Line
	// Statistics are those of its members, by pod and argument.
	Statistics map[string]map[string]string
	// Missing says what could not be read.
	Missing []string
}

// Collect reads the objects that belong to the owner. It reads no Secret.
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

// belongs tells whether the object is one that the operator makes or watches for the owner. Others may have a like name, and a
// ConfigMap of an application may have anything.
func belongs(o, owner client.Object) bool {
	labels := o.GetLabels()
	if _, is := owner.(*cachev1alpha1.StatefulSetDrain); is {
		_, isMap := o.(*corev1.ConfigMap)
		return !isMap
	}
	return labels[cachev1alpha1.LabelCluster] == owner.GetName() || labels[cachev1alpha1.LabelInstance] == owner.GetName() && labels[cachev1alpha1.LabelName] == cachev1alpha1.AppName
}

// names are those that may be quoted.
func (c *Contents) names() map[string]bool {
	names := map[string]bool{c.Owner.GetName(): true, c.Owner.GetNamespace(): true}
	for _, o := range c.Objects {
		names[o.GetName()] = true
		if pod, is := o.(*corev1.Pod); is {
			names[pod.Spec.NodeName] = true
		}
	}
	return names
}

// Write writes the archive, without values, keys and secrets.
func (c *Contents) Write(w io.Writer, now time.Time) error {
	out := &archive{Writer: tar.NewWriter(w), dir: c.Owner.GetName() + "-support", now: now}
	_, others := c.Owner.(*cachev1alpha1.StatefulSetDrain)
	cleaner := &Cleaner{Names: c.names(), Others: others}
	for _, o := range append([]client.Object{c.Owner}, c.Objects...) {
		if err := out.object(cleaner, o); err != nil {
			return err
		}
	}
	lines, leftOut := cleaner.Lines(c.Lines)
	var log strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&log, "%s %s %s\n", l.At.UTC().Format(time.RFC3339Nano), l.From, l.Text)
	}
	err := out.file("log.txt", log.String())
	for pod, all := range c.Statistics {
		text, failed := yaml.Marshal(Statistics(all))
		err = errors.Join(err, failed, out.file("stats/"+pod+".yaml", string(text)))
	}
	about := fmt.Sprintf("kubectl mc support-bundle of %s/%s, by version %s\n%d lines of other programs than the operator's are left out of log.txt,\n"+
		"and values, keys, Secrets, variables and what messages quote everywhere.\n", c.Owner.GetNamespace(), c.Owner.GetName(), version.String(), leftOut)
	for _, missing := range c.Missing {
		about += "not read: " + cleaner.Text(missing) + "\n"
	}
	return errors.Join(err, out.file("README.txt", about), out.Close())
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

func (a *archive) object(c *Cleaner, o client.Object) error {
	o = o.DeepCopyObject().(client.Object)
	if d, is := o.(*cachev1alpha1.StatefulSetDrain); is {
		othersWords(d)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	cleaned, err := yaml.Marshal(c.fields(v))
	if err != nil {
		return err
	}
	kind := fmt.Sprintf("%T", o)
	return a.file("objects/"+strings.ToLower(kind[strings.LastIndexByte(kind, '.')+1:])+"-"+o.GetName()+".yaml", string(cleaned))
}
