package v1alpha1_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/commandline"
)

// The tables are those of package commandline, which judges the arguments for the supervisor.
func TestTheAPIRefusesTheArgumentsThatTheSupervisorRefuses(t *testing.T) {
	server := theAPIServer(t)
	judge := func(arguments []string, want string) {
		object := server.of(t, apitest.MakeMemcached("cache").Memory("64Mi").Storage("128Mi").ExtraArgs(arguments...).Obj())
		errs := server.refuses(t, object, nil)
		said := slices.ContainsFunc(errs, func(why *field.Error) bool { return strings.Contains(why.Detail, want) })
		if want == "" && len(errs) > 0 || want != "" && !said {
			t.Errorf("%q: refused with %v, want %q", arguments, errs, want)
		}
	}
	for want, all := range map[string][]commandline.Form{
		"extraArgs must not have a flag that the operator sets itself": commandline.SupervisorsForms(),
		"memcached never restarts from the file":                       commandline.ShortPagesForms(),
		"memcached never starts with this":                             commandline.NeverStartsForms(),
		"memcached never restarts warm with it":                        commandline.ExternalForms(),
	} {
		for _, f := range all {
			if f.Refused {
				judge(f.Arguments, want)
			} else {
				judge(f.Arguments, "")
			}
		}
	}
	for _, arguments := range [][]string{{"-Wm1024"}, {"-Wp", "1"}, {"-WZ"}, {"-WY/x"}, {"-WS"}, {"--enable-sa"}, {"--prot=binary"}, {"-Wo"}, {"--slab-growth"}} {
		judge(arguments, "extraArgs")
	}
}
