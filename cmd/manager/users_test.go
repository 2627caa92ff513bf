package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type groups struct {
	names []string
	err   error
}

func (g groups) ServerGroups() (*metav1.APIGroupList, error) {
	var list metav1.APIGroupList
	for _, name := range g.names {
		list.Groups = append(list.Groups, metav1.APIGroup{Name: name})
	}
	return &list, g.err
}

// OpenShift refuses a pod that names another user than the namespace's.
func TestUsersAreLeftToAPlatformThatAssignsThem(t *testing.T) {
	openShift, plain := groups{names: []string{"apps", "security.openshift.io"}}, groups{names: []string{"apps"}}
	for name, test := range map[string]struct {
		args []string
		api  groups
		want bool
	}{
		"OpenShift":                {nil, openShift, true},
		"any other":                {nil, plain, false},
		"OpenShift, without SCC":   {[]string{"--assigned-users=false"}, openShift, false},
		"another with such a rule": {[]string{"--assigned-users=true"}, groups{err: errors.New("not asked")}, true},
	} {
		f := parse(t, test.args...)
		if got, err := f.usersAreAssigned(test.api); got != test.want || err != nil || f.check() != nil {
			t.Errorf("%s: %v, %v, %v", name, got, err, f.check())
		}
	}
	if _, err := parse(t).usersAreAssigned(groups{err: errors.New("not now")}); err == nil {
		t.Error("an API server that does not answer was taken for one without the group")
	}
	if parse(t, "--assigned-users=perhaps").check() == nil {
		t.Error("--assigned-users=perhaps was accepted")
	}
}

// The manager's own pods name no user, either: the image does, by number, as runAsNonRoot needs.
func TestTheManagersPodsNameNoUser(t *testing.T) {
	root := filepath.Join("..", "..")
	var templates []string
	for _, pattern := range []string{"*.*", "tests/*"} {
		found, err := filepath.Glob(filepath.Join(root, "charts/memcached-operator/templates", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("templates %v, %v", found, err)
		}
		templates = append(templates, found...)
	}
	for _, file := range append(templates, filepath.Join(root, "config/manager/manager.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"runAsUser:", "runAsGroup:", "fsGroup:"} {
			if strings.Contains(string(text), field) {
				t.Errorf("%s has %s", file, field)
			}
		}
	}
	image, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^USER [1-9][0-9]*:[1-9][0-9]*$`).Match(image) {
		t.Error("the image does not name its user by number")
	}
}
