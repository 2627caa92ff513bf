package cli

import (
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// completeNames completes the names of Memcacheds and StatefulSetDrains.
func (c *command) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := c.open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	clusters, err := s.Memcacheds(cmd.Context(), false)
	for i := range clusters {
		names = append(names, clusters[i].Name)
	}
	if err == nil {
		drains, _ := s.StatefulSetDrains(cmd.Context(), false) // without the right to list them, none is completed
		for i := range drains {
			names = append(names, "stsdrain/"+drains[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeHolders completes the names of the holders of members' items: claims that the operator knows, and
// pods of members without volumes.
func (c *command) completeHolders(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := c.open()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, label := range []string{cachev1alpha1.LabelCluster, cachev1alpha1.LabelStatefulSetDrain} {
		var claims corev1.PersistentVolumeClaimList
		if s.List(cmd.Context(), &claims, client.InNamespace(s.Namespace), client.HasLabels{label}) == nil {
			for i := range claims.Items {
				names = append(names, claims.Items[i].Name)
			}
		}
	}
	clusters, _ := s.Memcacheds(cmd.Context(), false) // without the right to list them, no pod is completed
	for i := range clusters {
		if !clusters[i].Spec.InPods() {
			continue
		}
		pods, _ := s.Pods(cmd.Context(), &clusters[i])
		for j := range pods {
			names = append(names, pods[j].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
