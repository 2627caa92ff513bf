package read

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// foreignClaims fills a cache like the one that watches claims without the label, and returns its
// size in bytes.
func foreignClaims(tb testing.TB, claims int) (store toolscache.Indexer, bytes uint64) {
	tb.Helper()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	store = toolscache.NewIndexer(toolscache.DeletionHandlingMetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		"field:" + byOwner:        func(any) ([]string, error) { return nil, nil },
	})
	for i := range claims {
		claim := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("data-of-another-owner-%d", i),
			UID: types.UID(fmt.Sprintf("6f1c2b5e-8d9a-4c3b-9e7f-%012d", i)), ResourceVersion: fmt.Sprint(1_000_000 + i),
			Labels:        map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i)},
			Annotations:   map[string]string{"pv.kubernetes.io/bind-completed": "yes", "note": fmt.Sprintf("%01000d", i)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "manager", FieldsV1: metav1.NewFieldsV1(fmt.Sprintf("%02000d", i))}},
		}}
		kept, err := onlyNames(claim)
		if err == nil {
			err = store.Add(kept)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return store, heap() - before
}

// BenchmarkForeignClaims measures how much memory a claim of another owner costs the manager.
func BenchmarkForeignClaims(b *testing.B) {
	const claims = 100_000
	for b.Loop() {
		store, bytes := foreignClaims(b, claims)
		b.ReportMetric(float64(bytes)/claims, "B/claim")
		b.ReportMetric(float64(bytes)/(1<<20), "MiB")
		runtime.KeepAlive(store)
	}
}

// The cache keeps only the name of another owner's claim, even if its labels and annotations are
// large.
func TestAForeignClaimCostsItsNameOnly(t *testing.T) {
	store, bytes := foreignClaims(t, 2000)
	if each := bytes / 2000; each > 1500 {
		t.Errorf("%d bytes for each claim", each)
	}
	runtime.KeepAlive(store)
}
