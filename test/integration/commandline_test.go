package integration

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/commandline"
)

// TestTheAPIRefusesTheArgumentsThatTheSupervisorRefuses has the tables of package commandline.
func TestTheAPIRefusesTheArgumentsThatTheSupervisorRefuses(t *testing.T) {
	w := newNamespace(t)
	for want, all := range map[string][]commandline.Form{
		"extraArgs must not have a flag that the operator sets itself": commandline.SupervisorsForms(),
		"memcached never restarts from the file":                       commandline.ShortPagesForms(),
		"memcached never starts with this":                             commandline.NeverStartsForms(),
		"memcached never restarts warm with it":                        commandline.ExternalForms(),
	} {
		for _, f := range all {
			object := apitest.MakeMemcached(name).Memory("64Mi").Storage("128Mi").ExtraArgs(f.Arguments...).Namespace(w.namespace).Obj()
			err := admin.Create(t.Context(), object, client.DryRunAll)
			if f.Refused != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: refused with %v, want refused=%t: %q", f.Arguments, err, f.Refused, want)
			}
		}
	}
	for _, arguments := range [][]string{{"-Wm1024"}, {"-Wp", "1"}, {"-WZ"}, {"-WY/x"}, {"-WS"}, {"--enable-sa"}, {"--prot=binary"}, {"-Wo"}, {"--slab-growth"}} {
		object := apitest.MakeMemcached(name).Memory("64Mi").Storage("128Mi").ExtraArgs(arguments...).Namespace(w.namespace).Obj()
		if err := admin.Create(t.Context(), object, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "extraArgs") {
			t.Errorf("%q: refused with %v", arguments, err)
		}
	}
}
