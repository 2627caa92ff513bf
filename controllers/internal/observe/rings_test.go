package observe

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/ring"
)

func testCluster() *cachev1alpha1.Memcached {
	return apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
}

// ringed is a cluster of size members, with as many claims, whose list has this record.
func ringed(size int32, record ring.Record) *State {
	o := &State{Cluster: testCluster(), Now: time.Unix(1e9, 0)}
	o.Cluster.Spec.Size = ptr.To(size)
	o.StatefulSet = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(size)}}
	for i := range size {
		o.Claims = append(o.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: build.ClaimName("cache", i), UID: types.UID(fmt.Sprint("uid-", i)), Annotations: map[string]string{},
			Finalizers: []string{cachev1alpha1.ClaimFinalizer},
		}})
	}
	o.ServerList = &corev1.ConfigMap{}
	o.list(size, record.String())
	return o
}

// list writes the clients' list with this number of servers and this record.
func (o *State) list(servers int32, record string) {
	o.ServerList.Annotations = map[string]string{cachev1alpha1.AnnotationRing: record}
	o.ServerList.Data = map[string]string{build.ServersKey: strings.Repeat("server\n", int(servers))}
}

func TestForgedListMakesNoMembers(t *testing.T) {
	honest := ring.Record{Serial: 3, Ring: build.RingOf(testCluster(), 3)}
	forged := ring.Record{Serial: 9, Ring: build.RingOf(testCluster(), 512), From: build.RingOf(testCluster(), 3)}
	for name, o := range map[string]*State{
		"a ring":             ringed(3, forged),
		"servers":            ringed(3, honest),
		"servers, no record": ringed(3, honest),
	} {
		record := o.ServerList.Annotations[cachev1alpha1.AnnotationRing]
		if o.list(512, record); name == "servers, no record" {
			o.ServerList.Annotations = nil
		}
		p := o.Plan()
		if p.Replicas != 3 || p.ListSize != 3 || p.Record.Ring.Size != 3 {
			t.Errorf("%s: %d members, %d are listed, by %s", name, p.Replicas, p.ListSize, p.Record)
		}
		if n := o.Input().ListSize; n != 3 {
			t.Errorf("%s: %d were listed", name, n)
		}
	}
}

func TestRecordIsBelievedWhereItCanBeTrue(t *testing.T) {
	record := ring.Record{Serial: 3, Ring: build.RingOf(testCluster(), 3), From: build.RingOf(testCluster(), 2)}
	for name, test := range map[string]struct {
		change func(o *State)
		is     bool
	}{
		"at rest":                       {func(*State) {}, true},
		"the claims are not seen yet":   {func(o *State) { o.Claims = nil }, true},
		"hibernating":                   {func(o *State) { o.Cluster.Spec.Size, o.StatefulSet = ptr.To[int32](0), nil }, true},
		"made anew, and nothing is yet": {func(o *State) { o.Claims, o.StatefulSet = nil, nil }, true},
		"a smaller one is wanted":       {func(o *State) { o.Cluster.Spec.Size = ptr.To[int32](1) }, true},
		"fewer are wanted, are there and have claims": {func(o *State) {
			o.Cluster.Spec.Size, o.StatefulSet, o.Claims = ptr.To[int32](2), nil, o.Claims[:2]
		}, false},
		"a claim is of a later ring": {func(o *State) { o.Claims[0].Annotations[cachev1alpha1.AnnotationMoved] = "4" }, false},
		"a claim has a number that no ring can have": {func(o *State) {
			o.Claims[0].Annotations[cachev1alpha1.AnnotationMoved] = "4503599627370496"
		}, true},
		"its number is none that a ring can have": {func(o *State) {
			o.list(3, strings.Replace(record.String(), `"serial":3`, `"serial":4503599627370496`, 1))
		}, false},
	} {
		o := ringed(3, record)
		test.change(o)
		if got := o.Input().Record; (got == record) != test.is || got.Serial > 4 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// follow plans until no items have to be moved, and writes the list and the moved serials. follow returns how many
// moves there were, and the last record.
func follow(t *testing.T, o *State) (moved int, record ring.Record) {
	t.Helper()
	for range 10 {
		p := o.Plan()
		record = p.Record
		o.list(p.ListSize, record.String())
		if again, err := ring.Parse(record.String()); err != nil || again != record {
			t.Fatalf("%s is read as %s, %v", record, again, err)
		}
		if len(p.Moves) == 0 {
			return moved, record
		}
		for i := range p.Moves {
			c := &p.Moves[i].Claim
			text := strconv.FormatInt(record.Serial, 10)
			if got := ring.ParseSerial(text); got != record.Serial {
				t.Fatalf("%s is read as %d", text, got)
			}
			o.Claims[c.Ordinal].Annotations[cachev1alpha1.AnnotationMoved] = text
			moved++
		}
	}
	t.Fatalf("moves don't end: %s", record)
	return 0, record
}

// With any numbers on claims and in the record, moves continue and end.
func TestNoNumberEndsMoves(t *testing.T) {
	numbers := []string{
		"", "x", "-1", "0", "1", "7", "4294967295", "4294967296", "4294967297", "8589934592", "4503599627370495", "4503599627370496",
		"4503599627370497", "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807", "18446744073709551616",
	}
	clients := [...]cachev1alpha1.Client{"gomemcache", "dalli"}
	random := rand.New(rand.NewPCG(1, 2)) // the same seed each time
	for range 300 {
		o := ringed(3, ring.Record{})
		draw := func() string { return numbers[random.IntN(len(numbers))] }
		var said []string
		for i := range o.Claims {
			said = append(said, draw())
			o.Claims[i].Annotations[cachev1alpha1.AnnotationMoved] = said[i]
		}
		said = append(said, fmt.Sprintf(`{"serial":%s,"ring":{"client":"gomemcache","port":11211,"size":3},"from":{"client":"dalli","port":11211,"size":%d}}`, draw(), random.IntN(4)))
		o.list(3, said[3])
		t.Run(strings.Join(said, " "), func(t *testing.T) {
			record := o.Input().Record
			for i := range 100 {
				record = record.Next(build.RingOf(o.Cluster, int32(1+i%2)))
				if again, err := ring.Parse(record.String()); err != nil || again != record || ring.ParseSerial(strconv.FormatInt(record.Serial, 10)) != record.Serial {
					t.Fatalf("%s is read as %s, %v", record, again, err)
				}
			}
			o.Cluster.Spec.Routing.Client = clients[0]
			follow(t, o)
			for i := range 4 {
				o.Cluster.Spec.Routing.Client = clients[(i+1)%2]
				// The first moves may leave serials that still counted, and start again.
				moved, record := follow(t, o)
				if moved < 3 || i > 1 && moved > 3 {
					t.Fatalf("another client, and %d members are moved by %s", moved, record)
				}
				for j := range o.Claims {
					if by := o.Claims[j].Annotations[cachev1alpha1.AnnotationMoved]; by != strconv.FormatInt(record.Serial, 10) {
						t.Fatalf("member %d is moved by %s, not by %s", j, by, record)
					}
				}
			}
		})
	}
}
