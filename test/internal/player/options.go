package player

import (
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/config"
)

// controllerOptions allow several players in one process.
func controllerOptions() config.Controller {
	return config.Controller{SkipNameValidation: ptr.To(true)}
}
