package plan

import "testing"

// Names of pods that don't serve yet would be misses of clients that hash.
func TestAPlainClustersListGrowsWhenAsManyMembersServe(t *testing.T) {
	for name, test := range map[string]struct {
		listed, ready, size, want int32
	}{
		"a new cluster":            {0, 0, 3, 3},
		"joining":                  {3, 4, 5, 3},
		"joined":                   {3, 5, 5, 5},
		"leaving":                  {5, 5, 3, 3},
		"one of three is replaced": {3, 2, 3, 3},
		"none":                     {3, 3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Cluster: Cluster{Plain: true, Size: test.size}, ListSize: test.listed}
			for i := range test.ready {
				o.Ready = append(o.Ready, i)
			}
			if p := Next(&o); p.ListSize != test.want || p.Replicas != test.size {
				t.Errorf("%d on the list, %d members", p.ListSize, p.Replicas)
			}
		})
	}
}
