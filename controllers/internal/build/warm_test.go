package build

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

func warmCluster(from cachev1alpha1.WarmSource) *cachev1alpha1.Memcached {
	c := apitest.MakeMemcached("cache").Namespace("shop").Size(2).Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) { s.WarmFrom = &from }).Defaulted().Obj()
	c.UID = "uid-cache"
	return c
}

func TestAWarmingReadsTheSourceAndNothingElse(t *testing.T) {
	limited := &cachev1alpha1.RateLimit{ItemsPerSecond: new(int64)}
	*limited.ItemsPerSecond = 7
	c := warmCluster(cachev1alpha1.WarmSource{
		Servers: []string{"old-0:11211", "b=old-1:11212"}, Routing: &cachev1alpha1.WarmRouting{Client: "libmemcached", KeyPrefix: "shop:"},
		TLS: &cachev1alpha1.WarmTLS{SecretName: "old-ca"}, Auth: &cachev1alpha1.AuthSpec{SecretName: "old-login"}, RateLimit: limited, OnShortage: cachev1alpha1.ShortageProceed,
	})
	job := WarmJob(c, Options{OperatorImage: "operator:1"}, Warm{Target: "warm-a-0-0-1", Members: 2, From: WarmFrom(c)})
	pod := job.Spec.Template.Spec
	for _, want := range []string{
		"copy", "--from=memcached:old-0:11211,b=old-1:11212", "--from-client=libmemcached", "--from-key-prefix=shop:", "--from-tls-dir=/source/tls",
		"--from-auth-file=/source/auth/auth-file", "--as-much-as-fits", "--source-id=move/uid-cache/warm-a-0-0-1", "--rate-limit-items=7", "--scratch=/scratch",
		"--server=cache-0.cache.shop.svc:11211", "--server=cache-1.cache.shop.svc:11211",
	} {
		if !slices.Contains(pod.Containers[0].Command, want) {
			t.Errorf("%s is missing: %q", want, pod.Containers[0].Command)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == sourceVolume && !m.ReadOnly {
			t.Error("it may write the source's Secrets")
		}
	}
	if len(job.Name) > 63 || !strings.Contains(job.Name, "-warm-") {
		t.Errorf("it is called %s", job.Name)
	}
	claim := WarmJob(c, Options{}, Warm{Target: "warm-a-0-0-1", Members: 2, Claim: "backup-0"}).Spec.Template.Spec
	at := slices.IndexFunc(claim.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
	if at < 0 || claim.Volumes[at].PersistentVolumeClaim.ClaimName != "backup-0" || !claim.Volumes[at].PersistentVolumeClaim.ReadOnly {
		t.Errorf("the claim is mounted like this: %+v", claim.Volumes)
	}
	if !slices.Contains(claim.Containers[0].Command, "--from=volumes:/data") {
		t.Errorf("it reads %q", claim.Containers[0].Command)
	}
}

// All claims are counted before the first one is copied. Only the last count decides, with what the others have; and a
// copy has a name, by which the next attempt goes on.
func TestTheClaimsOfAWarmingAreCountedTogether(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	const asMuch, count, besides, resume = "--as-much-as-fits", "--count", "--besides=5,7", "--resume=a/b/0"
	for name, test := range map[string]struct {
		onShortage cachev1alpha1.ShortagePolicy
		job        Warm
		want       []string
	}{
		"a count":        {cachev1alpha1.ShortageWait, Warm{Counts: true}, []string{asMuch, count}},
		"the last count": {cachev1alpha1.ShortageWait, Warm{Counts: true, Decides: true, Besides: []int64{5, 7}}, []string{count, besides}},
		"a copy":         {cachev1alpha1.ShortageWait, Warm{Resume: "a/b/0"}, []string{resume}},
		"as many as fit": {cachev1alpha1.ShortageProceed, Warm{}, []string{asMuch}},
	} {
		c := warmCluster(cachev1alpha1.WarmSource{Volumes: &cachev1alpha1.WarmVolumes{}, OnShortage: test.onShortage})
		test.job.Target, test.job.Members, test.job.Claim = "warm-a-0-0-1", 2, "monday-0"
		command := WarmJob(c, Options{}, test.job).Spec.Template.Spec.Containers[0].Command
		for _, arg := range []string{asMuch, count, besides, resume} {
			if slices.Contains(command, arg) != slices.Contains(test.want, arg) {
				t.Errorf("%s: %q, want %q", name, command, test.want)
			}
		}
		// A count begins at the beginning each time, so no deadline may end one.
		if bounded := slices.Contains(command, "--deadline=1h0m0s"); bounded == test.job.Counts {
			t.Errorf("%s: a deadline: %t", name, bounded)
		}
	}
}

func TestAnotherMemcachedIsReadByItsOwnListTLSAndLogins(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	source := apitest.MakeMemcached("green").Namespace("shop").Size(2).Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.TLS = &cachev1alpha1.TLSSpec{SecretName: "green-tls", ClientAuth: cachev1alpha1.ClientAuthRequired}
		s.Auth = &cachev1alpha1.AuthSpec{SecretName: "green-login"}
		s.Routing.ServerName = "c{ordinal}"
		s.Routing.Client = "dalli"
	}).Defaulted().Obj()
	if f := WarmFromMemcached(source); f != nil {
		t.Errorf("it has no servers, and is read from %s", f.From)
	}
	source.Status.Servers = []string{"green-0.green.shop.svc:11211", "green-1.green.shop.svc:11211"}
	f := WarmFromMemcached(source)
	if want := "memcached:c0=green-0.green.shop.svc:11211,c1=green-1.green.shop.svc:11211"; f.From != want {
		t.Errorf("it is read from %s, want %s", f.From, want)
	}
	if f.Client != "dalli" || f.ExportPort != 11212 || f.TLS != "green-tls" || f.Auth != "green-login" || !slices.Contains(f.TLSKeys, contract.KeyFile) {
		t.Errorf("it is read by %+v", f)
	}
	source.Spec.TLS.ClientAuth = cachev1alpha1.ClientAuthNone
	if f := WarmFromMemcached(source); slices.Contains(f.TLSKeys, contract.KeyFile) {
		t.Error("the Job gets a private key that it doesn't need")
	}
}

// Routers that ask the source mark the keys that clients change. The Job must leave these out.
func TestAWarmingObeysTheRoutersMarks(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	for _, onMiss := range []bool{false, true} {
		c := warmCluster(cachev1alpha1.WarmSource{Servers: []string{"old:11211"}, OnMiss: onMiss})
		job := WarmJob(c, Options{}, Warm{Target: "warm-a-0-0-1", Members: 2, From: WarmFrom(c)})
		if marks := slices.Contains(job.Spec.Template.Spec.Containers[0].Command, "--"+contract.FlagMarks); marks != onMiss {
			t.Errorf("onMiss %t: --%s: %t", onMiss, contract.FlagMarks, marks)
		}
	}
}

// A setting that only affects later steps begins no other copy.
func TestWhatAWarmingIsMadeOf(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	base := cachev1alpha1.WarmSource{Servers: []string{"old:11211"}}
	was := warmCluster(base)
	for name, test := range map[string]struct {
		change     func(*cachev1alpha1.WarmSource)
		made, same bool
	}{
		"until":         {func(s *cachev1alpha1.WarmSource) { s.Until = cachev1alpha1.WarmReady }, false, true},
		"patience":      {func(s *cachev1alpha1.WarmSource) { s.Patience = &metav1.Duration{Duration: 1} }, false, true},
		"onMiss":        {func(s *cachev1alpha1.WarmSource) { s.OnMiss = true }, true, true},
		"a login":       {func(s *cachev1alpha1.WarmSource) { s.Auth = &cachev1alpha1.AuthSpec{SecretName: "new"} }, true, true},
		"a rate":        {func(s *cachev1alpha1.WarmSource) { s.RateLimit = &cachev1alpha1.RateLimit{} }, true, true},
		"other servers": {func(s *cachev1alpha1.WarmSource) { s.Servers = []string{"new:11211"} }, true, false},
	} {
		s := *base.DeepCopy()
		test.change(&s)
		is := warmCluster(s)
		if made := WarmMade(was, WarmFrom(was), "", false) != WarmMade(is, WarmFrom(is), "", false); made != test.made {
			t.Errorf("%s: another Job: %t, want %t", name, made, test.made)
		}
		if same := WarmSource(was) == WarmSource(is); same != test.same {
			t.Errorf("%s: the same source: %t, want %t", name, same, test.same)
		}
	}
}

func TestRoutersAskTheSourceOnlyIfTheSpecSaysSo(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	c := warmCluster(cachev1alpha1.WarmSource{Discovery: "old:11211", Routing: &cachev1alpha1.WarmRouting{Client: "dalli"}, Auth: &cachev1alpha1.AuthSpec{SecretName: "old-login"}, OnMiss: true})
	c.Spec.Router = &cachev1alpha1.RouterSpec{}
	router := Routers(c, Options{OnMiss: WarmFrom(c)}).Spec.Template.Spec
	for _, want := range []string{"--on-miss=discovery:old:11211", "--on-miss-client=dalli", "--on-miss-auth-file=/source/auth/auth-file"} {
		if !slices.Contains(router.Containers[0].Command, want) {
			t.Errorf("%s is missing: %q", want, router.Containers[0].Command)
		}
	}
	if command := Routers(c, Options{}).Spec.Template.Spec.Containers[0].Command; strings.Contains(strings.Join(command, " "), "on-miss") {
		t.Errorf("the source is not known, and routers get %q", command)
	}
	without := c.DeepCopy()
	without.Spec.WarmFrom.OnMiss = false
	if RouterSpec(c) == RouterSpec(without) {
		t.Error("the routers' hash is the same")
	}
}

func TestClaimsThatCannotBeASource(t *testing.T) {
	tier.Second(t, "TestAWarmingReadsTheSourceAndNothingElse")
	c := warmCluster(cachev1alpha1.WarmSource{})
	claim := func(name string, change func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
		out := corev1.PersistentVolumeClaim{}
		if out.Name = name; change != nil {
			change(&out)
		}
		return out
	}
	for name, test := range map[string]struct {
		claim corev1.PersistentVolumeClaim
		why   string
	}{
		"its own":       {claim("data-cache-0", nil), "its own"},
		"another's":     {claim("data-green-0", nil), ""},
		"being deleted": {claim("backup", func(p *corev1.PersistentVolumeClaim) { p.DeletionTimestamp = &metav1.Time{} }), "being deleted"},
		"a device": {claim("backup", func(p *corev1.PersistentVolumeClaim) {
			block := corev1.PersistentVolumeBlock
			p.Spec.VolumeMode = &block
		}), "block device"},
		"lost": {claim("backup", func(p *corev1.PersistentVolumeClaim) { p.Status.Phase = corev1.ClaimLost }), "lost"},
	} {
		all, why := WarmClaims(c, []corev1.PersistentVolumeClaim{claim("a", nil), test.claim})
		if (why != "") != (test.why != "") || !strings.Contains(why, strings.TrimPrefix(test.why, "its ")) || len(all) != 2 {
			t.Errorf("%s: %d claims, %q", name, len(all), why)
		}
	}
}
