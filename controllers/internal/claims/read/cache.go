package read

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewCache returns a cache of these objects, which the manager starts with its own: a cache has one selector for each
// kind, and these objects need another one. Call it before the manager starts.
func NewCache(mgr ctrl.Manager, objects map[client.Object]cache.ByObject, namespaces ...string) (cache.Cache, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ReaderFailOnMissingInformer: true,
		ByObject: objects, DefaultNamespaces: InNamespaces(namespaces),
	})
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(ownCache{c})
}

// ownCache has the method by which the manager recognizes a cache.
type ownCache struct{ cache.Cache }

// GetCache returns the cache.
func (c ownCache) GetCache() cache.Cache { return c.Cache }

// InNamespaces is how a cache is limited to these namespaces; nil, for all, if none are given.
func InNamespaces(namespaces []string) map[string]cache.Config {
	if len(namespaces) == 0 {
		return nil
	}
	only := map[string]cache.Config{}
	for _, namespace := range namespaces {
		only[namespace] = cache.Config{}
	}
	return only
}
