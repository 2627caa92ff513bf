// Command provisioner makes a volume of type "local" for each claim of its storage class: a directory on the
// node that the scheduler chose, with node affinity. Unlike for hostPath volumes, the kubelet applies fsGroup.
// Volumes grow when their claims do. A claim whose dataSource is another claim gets a copy of that one's files, as of
// a snapshot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the provisioner's own identity")
	name := flag.String("name", "", "the provisioner's name, as storage classes give it")
	root := flag.String("root", "", "directory that holds one directory per node, and in that one per volume")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *name, *root); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, name, root string) error {
	if name == "" || !filepath.IsAbs(root) {
		return errors.New("--name and an absolute --root are required")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// Tests create and delete many claims at once.
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := growVolumes(ctx, client, name); err != nil {
		return err
	}
	controller.NewProvisionController(ctx, client, name, provisioner{root: root, client: client},
		controller.LeaderElection(false),
		controller.MetricsPort(0),
	).Run(ctx)
	return nil
}

type provisioner struct {
	root   string
	client kubernetes.Interface
}

// Provision makes the volume's directory. The directory is owned by root, and only root can write, as on a
// freshly formatted disk: a pod gets further rights by its fsGroup.
func (p provisioner) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	claim := options.PVC
	if options.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished,
			errors.New("no node was selected: the storage class needs volumeBindingMode WaitForFirstConsumer")
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volumeMode %s is not supported, only Filesystem", *mode)
	}
	path, err := p.directory(filepath.Join(p.root, options.SelectedNodeName, options.PVName))
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := p.clone(ctx, claim, path); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   claim.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: path},
			},
			NodeAffinity: onNode(options.SelectedNodeName),
		},
	}, controller.ProvisioningFinished, nil
}

// clone copies the files of the claim's dataSource, if it has one.
func (p provisioner) clone(ctx context.Context, claim *corev1.PersistentVolumeClaim, path string) error {
	from := claim.Spec.DataSource
	if from == nil {
		return nil
	}
	if from.Kind != "PersistentVolumeClaim" {
		return fmt.Errorf("a dataSource of kind %s is not supported, only PersistentVolumeClaim", from.Kind)
	}
	source, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, from.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, source.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if volume.Spec.Local == nil {
		return fmt.Errorf("volume %s is not of type local", volume.Name)
	}
	files, err := p.directory(volume.Spec.Local.Path)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "cp", "--archive", "--sparse=always", files+"/.", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy %s: %w: %s", files, err, out)
	}
	return nil
}

func onNode(name string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{name},
			}},
		}},
	}}
}

// Delete removes the volume's directory with its files.
func (p provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil {
		return fmt.Errorf("volume %s is not of type local", volume.Name)
	}
	path, err := p.directory(volume.Spec.Local.Path)
	if err != nil {
		return fmt.Errorf("volume %s: %w", volume.Name, err)
	}
	return os.RemoveAll(path)
}

// directory returns the cleaned path. directory refuses a path that is not exactly a volume's directory,
// because people can edit the objects that names and paths come from.
func (p provisioner) directory(path string) (string, error) {
	path = filepath.Clean(path)
	relative, err := filepath.Rel(p.root, path)
	if err != nil || strings.Count(relative, "/") != 1 || strings.HasPrefix(relative, "..") {
		return "", fmt.Errorf("%s is not a volume's directory under %s", path, p.root)
	}
	return path, nil
}
