package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errEnding is the API server's answer if the namespace is being deleted.
func errEnding() *apierrors.StatusError {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "cache", errors.New("namespace shop is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

func TestAWriteIntoANamespaceThatIsBeingDeletedIsNotLoggedAsAnError(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "cache", errors.New("no right to"))
	for name, test := range map[string]struct {
		err       error
		verbosity int
		want      string
	}{
		"the namespace ends":           {errEnding(), 0, ""},
		"the namespace ends, in debug": {fmt.Errorf("apply the Service: %w", errEnding()), 1, `"level"=1`},
		"a right is missing":           {forbidden, 0, `"error"=`},
		"no error":                     {nil, 0, `"error"=null`},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			log := Logger(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{
				Verbosity: test.verbosity, LogCaller: funcr.All,
			}))
			log.WithName("memcached").WithValues("namespace", "shop").Error(test.err, "Reconciler error", "a", "b")
			got := strings.Join(lines, "\n")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got != "" && (!strings.Contains(got, "logging_test.go") || !strings.Contains(got, `"namespace"="shop"`) || !strings.Contains(got, `"a"="b"`)) {
				t.Errorf("caller and values are missing: %s", got)
			}
		})
	}
}
