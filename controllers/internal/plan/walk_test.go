package plan

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// walk is a history of a cluster: the events of people, Kubernetes and the operator, one after the
// other. Caches never lag, and no write fails; the model (internal/model) has both, for three
// members and without routers. Here are more members, routers, and much longer histories.
type walk struct {
	Observed
	r *rand.Rand
	// ids numbers claims and Jobs. ready tells which members are ready.
	ids int
	// volumes tells which claim each volume names.
	volumes map[string]reference
	// story has the past events.
	story []string
	replacing
	// held tells whether an event of this kind must not happen by itself now (for a written
	// history).
	held func(event string) bool
	// holds has the pods without volumes that may have the only copy of an item: clients are or were told of them,
	// and no mover has found nothing there since.
	holds map[types.UID]bool
	// counts tells which Jobs of a warming only count, by their targets.
	counts map[string]bool
}

// reference is the claim that a volume waits for, or is bound to. A volume that waits has the
// claim's name alone.
type reference struct {
	name string
	uid  types.UID
}

// happens is a possible next event.
type happens struct {
	what string
	do   func()
}

func newWalk(size int32, client string, routers bool) *walk {
	w := &walk{Observed: at(size).o, volumes: map[string]reference{}}
	w.Now = time.Unix(1_000_000, 0)
	w.Cluster.Patience, w.Cluster.MoveDeadline = time.Minute, time.Hour
	w.Cluster.Ring.Client = client
	w.Record.Ring = w.Cluster.Ring.Of(size)
	w.Ready = slices.Clone(w.Pods)
	w.replacing = newReplacing(size)
	if routers {
		w.routers()
	}
	for i := range w.Claims {
		w.Claims[i] = w.newClaim(w.Claims[i].Ordinal)
	}
	return w
}

func (w *walk) newUID() types.UID {
	w.ids++
	return types.UID(fmt.Sprintf("u%d", w.ids))
}

// newClaim returns a member's claim, with a volume.
func (w *walk) newClaim(ordinal int32) claims.Claim {
	uid := w.newUID()
	if w.Cluster.InPods {
		return claims.Claim{InPod: true, Name: name(ordinal), UID: uid, Ordinal: ordinal, NotStartedYet: true, Unstamped: true}
	}
	c := claims.Claim{
		Name: name(ordinal), UID: uid, Ordinal: ordinal, Finalizer: true, Volume: "pv-" + string(uid), AsideName: "aside-of-" + string(uid), InUse: true,
	}
	w.volumes[c.Volume] = reference{c.Name, uid}
	return c
}

// lookAtVolumes tells where the volumes are that the operator reads (package observe).
func (w *walk) lookAtVolumes() {
	for i := range w.Claims {
		c := &w.Claims[i]
		returns := !c.LeavingSince.IsZero() && !c.Aside && c.Ordinal < w.Cluster.Size
		if c.Where = claims.NotLookedAt; returns || c.Finalizer && c.Deleting {
			c.Where = w.where(c)
		}
	}
}

// where tells where the claim's volume is (claims/read).
func (w *walk) where(c *claims.Claim) claims.Where {
	switch of, exists := w.volumes[c.Volume]; {
	case !exists:
		return claims.Gone
	case of == reference{c.Name, c.UID}:
		return claims.Here
	case of == reference{name: c.Name} && c.Pending:
		return claims.Promised
	case of.name == c.AsideName:
		return claims.Reserved
	}
	return claims.Elsewhere
}

func (w *walk) routers() {
	w.Cluster.Routers, w.Cluster.Exclusive = true, w.r == nil || w.r.IntN(2) == 0
	w.Table = &ring.Table{State: contract.RingStable, New: w.Record.Ring, Since: w.Now, Acknowledged: true}
}

func (w *walk) note(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// operate plans, and takes the steps as package apply does. operate tells whether a step changed something.
func (w *walk) operate(t *testing.T) (p Plan, changed bool) {
	t.Helper()
	w.lookAtVolumes()
	w.noteHolders()
	w.lookAtTemplates()
	checkSteps(t, &w.Observed)
	p = Next(&w.Observed)
	w.checkDeleted(t, &p)
	membersFailed, claimsFailed := false, map[types.UID]bool{}
	view := w.Observed // all marks of a plan share one live read
	view.Claims = slices.Clone(w.Claims)
	for _, a := range p.Actions {
		live := &w.Observed
		if _, marks := a.(action.MarkLeaving); marks {
			live = &view
		}
		kind := action.KindOf(a)
		if kind.Class == action.Members && membersFailed || kind.Claim != "" && claimsFailed[kind.Claim] {
			continue
		}
		if _, err := refusedLive(live, a); err != nil {
			w.note("refused: %s: %v", a, err)
			membersFailed = membersFailed || kind.Class == action.Members
			claimsFailed[kind.Claim] = claimsFailed[kind.Claim] || kind.Class == action.Claim
			continue
		}
		w.checkShrink(t, a)
		w.checkStep(t, a)
		if w.act(a) {
			w.lookAtVolumes()
			w.note("  %s", a)
			changed = true
		}
	}
	return p, changed
}

// checkDeleted fails if status says that another client has taken the volume of a claim. Here the
// operator alone binds volumes to other claims, and a person may give up the claim that has one.
func (w *walk) checkDeleted(t *testing.T, p *Plan) {
	t.Helper()
	deleted := slices.Clone(p.DeletedClaims)
	for _, d := range p.Drains {
		deleted = append(deleted, claims.DeletedClaim{Claim: d.Claim.Ref(), Message: d.Message})
	}
	for _, d := range deleted {
		of := w.Claim(d.Claim.UID)
		givenUp := slices.ContainsFunc(w.Claims, func(c claims.Claim) bool { return c.Aside && c.Volume == of.Volume && c.Request == claims.Skip })
		if strings.Contains(d.Message, "bound to another claim") && !givenUp {
			t.Fatalf("claim %s: %s:\n%s\n%s%s", d.Claim.Name, d.Message, strings.Join(w.story, "\n"), describe(&w.Observed), w.says(p))
		}
	}
}

// act takes a step, and tells whether it changed something.
func (w *walk) act(planned action.Action) bool {
	change := func(ref action.ClaimRef, do func(*claims.Claim)) bool {
		c := w.Claim(ref.UID)
		if c == nil {
			return false
		}
		before := *c
		do(c)
		changed := before != *c
		w.endClaims()
		return changed
	}
	switch a := planned.(type) {
	case action.AddOwnerFinalizer:
		w.Cluster.Finalizer = true
		return true
	case action.AddClaimFinalizer:
		return change(a.Claim, func(c *claims.Claim) { c.Finalizer = true })
	case action.MarkLeaving:
		return change(a.Claim, func(c *claims.Claim) {
			w.mark(c)
			c.Unmoved = a.Unmoved
			c.NeverStarted = c.InPod && a.NeverStarted
		})
	case action.StampPod:
		return change(a.Claim, func(c *claims.Claim) { c.Moved, c.Unstamped = a.Serial, false })
	case action.WriteList:
		changed := w.Record != a.Record || w.ListSize != a.ListSize
		w.Record, w.ListSize = a.Record, a.ListSize
		return changed
	case action.WriteTable:
		return w.writeTable(a)
	case action.ApplyStatefulSet:
		changed := !w.StatefulSet.Exists || w.StatefulSet.Replicas != a.Replicas
		w.StatefulSet.Exists, w.StatefulSet.Replicas = true, a.Replicas
		for i := range w.Claims {
			if c := &w.Claims[i]; c.InPod && c.Ordinal >= a.Replicas {
				c.Deleting = true
			}
		}
		return w.applyTemplate(a) || changed
	case action.StartEmpty:
		return w.tellEmpty(a)
	case action.CreateDrain:
		w.Jobs = append(w.Jobs, claims.Job{Name: "drain", UID: w.newUID(), ClaimUID: a.Claim.UID, Survivors: a.Survivors})
		return true
	case action.CreateMove:
		w.Moves = append(w.Moves, claims.Job{Name: "move", UID: w.newUID(), ClaimUID: a.Claim.UID, Target: a.Target, Waits: a.Prepared})
		return true
	case action.BeginMove:
		changed := false
		for i := range w.Drainers {
			if d := &w.Drainers[i]; d.ClaimUID == a.Claim.UID && d.Target == a.Target && d.Waits {
				d.Waits, changed = false, true
			}
		}
		if job := look(&w.Observed).of(a.Claim.UID).mover; job != nil && changed {
			job.Waits = false
		}
		return changed
	case action.DeleteJob:
		return w.deleteJob(a.UID)
	}
	if changed, known := w.actOnWarming(planned); known {
		return changed
	}
	return w.actOnClaim(planned, change)
}

func (w *walk) actOnClaim(planned action.Action, change func(action.ClaimRef, func(*claims.Claim)) bool) bool {
	switch a := planned.(type) {
	case action.RecordReceipt:
		return change(a.Claim, func(c *claims.Claim) { c.Receipt = a.Receipt })
	case action.CountFailure:
		return change(a.Claim, func(c *claims.Claim) { c.Attempts = a.Attempts })
	case action.ClearRetry:
		return change(a.Claim, func(c *claims.Claim) {
			if c.Request == claims.Retry {
				c.Request, c.Attempts, c.Decided, c.Policy = claims.NoRequest, action.Attempts{}, true, claims.Drain
			}
		})
	case action.RecordMoved:
		return change(a.Claim, func(c *claims.Claim) {
			c.Moved, c.MoveRequest, c.Attempts = a.Serial, claims.NoRequest, action.Attempts{}
		})
	case action.ClearMoveRetry:
		return change(a.Claim, func(c *claims.Claim) {
			if c.MoveRequest == claims.Retry {
				c.MoveRequest, c.Attempts = claims.NoRequest, action.Attempts{}
			}
		})
	case action.DeleteClaim:
		return change(a.Claim, deletes)
	case action.SetAside:
		return change(a.Claim, deletes)
	case action.ReleaseClaim:
		return change(a.Claim, func(c *claims.Claim) { c.Finalizer = false })
	case action.ReserveVolume:
		return w.bind(a.Claim, a.Volume, reference{name: a.To}, claims.MayReserve)
	case action.ReturnVolume:
		return w.bind(a.Claim, a.Volume, reference{a.Claim.Name, a.Claim.UID}, func(c *claims.Claim) error {
			return claims.MayReturn(c, w.volumes[a.Volume].uid != "")
		})
	case action.SkipToo:
		return change(a.Claim, func(c *claims.Claim) { c.Request = claims.Skip })
	case action.CarryOver:
		return change(a.Claim, func(c *claims.Claim) { c.Fresh = c.Fresh && claims.MayCarryOver(&w.Facts, c) != nil })
	case action.CreateAside:
		return w.createAside(a)
	}
	return false
}

func deletes(c *claims.Claim) { c.Deleting = true }

// bind lets the claim's volume name a claim, and tells whether it named another one.
func (w *walk) bind(ref action.ClaimRef, volume string, to reference, may func(*claims.Claim) error) bool {
	c := w.Claim(ref.UID)
	if c == nil || w.volumes[volume] == to || may(c) != nil {
		return false
	}
	w.volumes[volume] = to
	return true
}

func (w *walk) mark(c *claims.Claim) {
	if c.LeavingSince.IsZero() {
		c.Left = w.leftNow()
		c.LeavingSince, c.Decided, c.Policy, c.Attempts = w.Now, true, w.Cluster.Policy, action.Attempts{}
	}
}

// leftNow is the number of a mark that is written now, the same for all marks of one moment.
func (w *walk) leftNow() int64 {
	for i := range w.Claims {
		if c := &w.Claims[i]; c.LeavingSince.Equal(w.Now) {
			return c.Left
		}
	}
	return claims.NextLeft(w.Claims)
}

func (w *walk) createAside(a action.CreateAside) bool {
	of := w.Claim(a.Claim.UID)
	if of == nil || claims.MayReserve(of) != nil || slices.ContainsFunc(w.Claims, func(c claims.Claim) bool { return c.Name == a.To }) {
		return false
	}
	aside := claims.Claim{
		Name: a.To, UID: w.newUID(), Ordinal: of.Ordinal, Finalizer: true, Aside: true, First: of.UID, Fresh: true, Volume: of.Volume, Pending: true, InUse: true,
		LeavingSince: of.LeavingSince, Left: of.Left, Decided: of.Decided, Policy: of.Policy, Request: of.Request, Moved: a.StoredBy,
	}
	aside.AsideName = "aside-of-" + string(aside.UID)
	if aside.Request == claims.Retry {
		aside.Request = claims.NoRequest
	}
	if aside.LeavingSince.IsZero() {
		aside.Left = claims.NextLeft(w.Claims)
		aside.LeavingSince, aside.Decided, aside.Policy = w.Now, true, w.Cluster.Policy
	}
	w.Claims = append(w.Claims, aside)
	return true
}

// deleteJob deletes the Job; its pod may run for a while longer.
func (w *walk) deleteJob(uid types.UID) bool {
	is := func(j claims.Job) bool { return j.UID == uid }
	n := len(w.Jobs) + len(w.Moves) + len(w.Warms)
	w.Jobs, w.Moves, w.Warms = slices.DeleteFunc(w.Jobs, is), slices.DeleteFunc(w.Moves, is), slices.DeleteFunc(w.Warms, is)
	return len(w.Jobs)+len(w.Moves)+len(w.Warms) < n
}

// writeTable writes the table as build.RouterTable makes it.
func (w *walk) writeTable(a action.WriteTable) bool {
	next := w.Cluster.Ring.Of(a.ListSize)
	next.Out = a.Out
	if w.Table == nil || w.Table.State == a.State && (a.State != contract.RingStable && a.State != contract.RingPrepare || w.Table.New == next) {
		return false
	}
	t := *w.Table
	switch a.State {
	case contract.RingStable:
		t = ring.Table{New: next}
	case contract.RingPrepare:
		if t.State == contract.RingStable {
			t.Old = t.New
		}
		t.New, t.Shared = next, !w.Cluster.Exclusive
	}
	t.State, t.Since, t.Acknowledged = a.State, w.Now, false
	w.Table = &t
	return true
}

// endClaims removes deleted claims without a finalizer, and the volumes that are bound to them.
func (w *walk) endClaims() {
	w.Claims = slices.DeleteFunc(w.Claims, func(c claims.Claim) bool {
		ends := c.Deleting && !c.Finalizer && !c.InUse && !c.InPod
		if ends && w.volumes[c.Volume].uid == c.UID {
			delete(w.volumes, c.Volume)
		}
		return ends
	})
}

// memberClaim is the claim that a member of this ordinal would use, or nil.
func (w *walk) memberClaim(ordinal int32) *claims.Claim {
	for i := range w.Claims {
		if c := &w.Claims[i]; c.Ordinal == ordinal && !c.Aside {
			return c
		}
	}
	return nil
}

// kubernetes returns the events of controllers and kubelets that may come next. All of them come
// sooner or later.
func (w *walk) kubernetes() (all []happens) {
	add := func(what string, do func()) {
		if w.held == nil || !w.held(what) {
			all = append(all, happens{what, do})
		}
	}
	most := w.StatefulSet.Replicas
	for _, i := range w.Pods {
		most = max(most, i+1)
	}
	for i := range most {
		w.memberEvents(i, add)
	}
	w.templateEvents(add)
	for i := range w.Claims {
		w.claimEvents(w.Claims[i], add)
	}
	for _, j := range slices.Concat(w.Jobs, w.Moves) {
		w.jobEvents(j, add)
	}
	for i := range w.Drainers {
		d := w.Drainers[i]
		known := func(j claims.Job) bool { return j.ClaimUID == d.ClaimUID && j.Target == d.Target }
		if !slices.ContainsFunc(w.Jobs, known) && !slices.ContainsFunc(w.Moves, known) && !slices.ContainsFunc(w.Warms, known) {
			add("a drainer without a Job ends", func() { w.dropDrainer(d.ClaimUID, d.Target) })
		}
	}
	w.warmEvents(add)
	if w.Table != nil && !w.Table.Acknowledged {
		add("routers acknowledge", func() {
			t := *w.Table
			t.Acknowledged = true
			w.Table = &t
		})
	}
	return all
}

func (w *walk) memberEvents(i int32, add func(string, func())) {
	wanted := w.StatefulSet.Exists && i < w.StatefulSet.Replicas
	c := w.memberClaim(i)
	switch {
	case !wanted && w.PodExists(i):
		add(fmt.Sprintf("pod %d is gone", i), func() { w.losePod(i) })
	case w.Cluster.InPods && c != nil && c.Deleting:
		add(fmt.Sprintf("pod %d is gone", i), func() { w.losePod(i) })
	case wanted && w.Cluster.InPods && c == nil:
		add(fmt.Sprintf("pod %d is made", i), func() {
			w.Pods, w.Claims = append(w.Pods, i), append(w.Claims, w.newClaim(i))
			w.newPod(i)
		})
	case wanted && c == nil:
		add(fmt.Sprintf("claim %d is made", i), func() { w.Claims = append(w.Claims, w.newClaim(i)) })
	case wanted && !w.PodExists(i) && !c.Deleting:
		add(fmt.Sprintf("pod %d is made", i), func() { w.Pods = append(w.Pods, i); w.newPod(i) })
	case wanted && w.PodExists(i) && !slices.Contains(w.Ready, i) && !w.unready[i]:
		add(fmt.Sprintf("member %d is ready", i), func() {
			w.Ready = append(w.Ready, i)
			w.LastReady = w.Now
			c.NotStartedYet = c.NotStartedYet && !c.InPod
			w.Away = slices.DeleteFunc(w.Away, func(a Away) bool { return a.Ordinal == i })
		})
	}
}

func (w *walk) losePod(i int32) {
	is := func(other int32) bool { return other == i }
	w.Pods, w.Ready = slices.DeleteFunc(w.Pods, is), slices.DeleteFunc(w.Ready, is)
	w.forgetPod(i)
	w.Claims = slices.DeleteFunc(w.Claims, func(c claims.Claim) bool { return c.InPod && c.Ordinal == i })
	w.Away = slices.DeleteFunc(w.Away, func(a Away) bool { return a.Ordinal == i })
	if i < w.StatefulSet.Replicas {
		w.Away = append(w.Away, Away{i, w.Now})
	}
}

func (w *walk) claimEvents(c claims.Claim, add func(string, func())) {
	used := !c.Aside && w.PodExists(c.Ordinal) || slices.ContainsFunc(w.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == c.UID && !d.Mover() })
	if c.Deleting && c.InUse && !used {
		add("no pod uses claim "+c.Name, func() {
			w.Claim(c.UID).InUse = false
			w.endClaims()
		})
	}
	if c.Pending && w.volumes[c.Volume] == (reference{name: c.Name}) {
		add("claim "+c.Name+" is bound", func() {
			w.Claim(c.UID).Pending, w.volumes[c.Volume] = false, reference{c.Name, c.UID}
		})
	}
}

func (w *walk) dropDrainer(uid types.UID, target string) {
	w.Drainers = slices.DeleteFunc(w.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == uid && d.Target == target })
	is := func(other types.UID) bool { return other == uid }
	w.ClaimsWithDrainerPod = slices.DeleteFunc(w.ClaimsWithDrainerPod, is)
	w.ClaimsWithDrainerAtWork = slices.DeleteFunc(w.ClaimsWithDrainerAtWork, is)
}

const notTold = "a mover is not told to begin"

func (w *walk) jobEvents(j claims.Job, add func(string, func())) {
	if j.State != claims.JobActive {
		return
	}
	at := slices.IndexFunc(w.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == j.ClaimUID && d.Target == j.Target })
	c := w.Claim(j.ClaimUID)
	switch {
	case at < 0 && c != nil && (j.Target != "" || !c.Deleting):
		add(fmt.Sprintf("a drainer of claim %s by %q is made", j.ClaimUID, j.Target), func() {
			w.Drainers = append(w.Drainers, claims.Drainer{Pod: "drainer", ClaimUID: j.ClaimUID, Target: j.Target, Waits: j.Waits})
			w.ClaimsWithDrainerPod = append(w.ClaimsWithDrainerPod, j.ClaimUID)
		})
	case at < 0:
	case !w.Drainers[at].Running:
		add(fmt.Sprintf("a drainer of claim %s by %q runs", j.ClaimUID, j.Target), func() {
			d := &w.Drainers[at]
			if d.Running, d.Prepared = true, d.Waits; j.Target == "" {
				w.ClaimsWithDrainerAtWork = append(w.ClaimsWithDrainerAtWork, j.ClaimUID)
			}
		})
	case w.Drainers[at].Waits:
		add(notTold, func() { w.endJob(j.UID, claims.JobFailed, "NotBegun", contract.ExitFailed) })
	case c != nil:
		add(fmt.Sprintf("the drainer of claim %s by %q ends well", j.ClaimUID, j.Target), func() { w.endJob(j.UID, claims.JobComplete, "", 0) })
	}
}

// endJob ends the Job and its pod.
func (w *walk) endJob(uid types.UID, state claims.JobState, reason string, exit int) {
	for _, jobs := range [][]claims.Job{w.Jobs, w.Moves} {
		for i := range jobs {
			j := &jobs[i]
			if j.UID != uid {
				continue
			}
			source := string(j.ClaimUID)
			if j.Target != "" {
				source = ring.Source(j.ClaimUID, j.Target)
			}
			j.State, j.Ended, j.Waits = state, w.Now, false
			if c := w.Claim(j.ClaimUID); state == claims.JobComplete && c != nil && c.Ordinal >= w.Record.Ring.Size {
				delete(w.holds, c.UID)
			}
			j.Receipt = receiptFor(types.UID(source))
			if state == claims.JobFailed {
				j.Receipt = ReceiptOf(&contract.Receipt{Version: 1, Source: source, Reason: reason, Message: "it failed", ExitCode: exit})
			}
			w.dropDrainer(j.ClaimUID, j.Target)
		}
	}
}

// mishaps returns the faults that may happen at any time, and that no progress may depend on.
func (w *walk) mishaps() (all []happens) {
	for _, i := range w.Pods {
		all = append(all, happens{fmt.Sprintf("POD %d IS LOST", i), func() { w.losePod(i) }})
		if slices.Contains(w.Ready, i) {
			all = append(all, happens{fmt.Sprintf("MEMBER %d IS NOT READY", i), func() {
				w.Ready = slices.DeleteFunc(w.Ready, func(o int32) bool { return o == i })
				w.Away = append(w.Away, Away{i, w.Now})
			}})
		}
	}
	for _, j := range slices.Concat(w.Jobs, w.Moves) {
		if j.State != claims.JobActive {
			continue
		}
		all = append(all, happens{"A JOB FAILS", func() { w.endJob(j.UID, claims.JobFailed, "SurvivorUnreachable", contract.ExitFailed) }})
		if j.Target == "" {
			all = append(all, happens{"A VOLUME CAN'T BE READ", func() { w.endJob(j.UID, claims.JobFailed, "WarmFileCorrupt", contract.ExitUnrecoverable) }})
		}
	}
	return append(all, w.warmMishaps()...)
}

const largestWalk = 5

// deeds returns the actions that people may take.
func (w *walk) deeds() (all []happens) {
	add := func(what string, do func()) { all = append(all, happens{"A PERSON " + what, do}) }
	for n := range int32(largestWalk + 1) {
		if n != w.Cluster.Size {
			add(fmt.Sprintf("wants %d members", n), func() { w.Cluster.Size = n })
		}
	}
	for i := range w.Claims {
		c := w.Claims[i]
		on := func(do func(*claims.Claim)) func() { return func() { do(w.Claim(c.UID)); w.endClaims() } }
		if !c.Deleting {
			add("deletes claim "+c.Name, on(deletes))
			if w.PodExists(c.Ordinal) && !c.Aside && !c.InPod {
				add("deletes claim and pod "+c.Name, func() {
					deletes(w.Claim(c.UID))
					w.losePod(c.Ordinal)
				})
			}
		}
		requests := []claims.Request{claims.NoRequest, claims.Hold, claims.Retry, claims.Skip}
		if c.InPod {
			requests = []claims.Request{claims.NoRequest, claims.Skip}
		}
		for _, r := range requests {
			if !c.LeavingSince.IsZero() && r != c.Request {
				add(fmt.Sprintf("annotates claim %s with %q", c.Name, r), on(func(c *claims.Claim) { c.Request = r }))
			}
		}
		if c.LeavingSince.IsZero() {
			for _, r := range []claims.Request{claims.Retry, claims.Skip} {
				add(fmt.Sprintf("annotates claim %s with move=%s", c.Name, r), on(func(c *claims.Claim) { c.MoveRequest = r }))
			}
		}
	}
	for _, client := range []string{"gomemcache", "libmemcached-ketama"} {
		if client != w.Cluster.Ring.Client {
			add("names client "+client, func() { w.Cluster.Ring.Client = client })
		}
	}
	add("changes whether items are moved", func() { w.Cluster.MovesOff = !w.Cluster.MovesOff })
	add("changes the template", func() { w.wanted++ })
	add("changes how members are replaced", func() {
		w.Cluster.Moved = !w.Cluster.Moved
		w.Cluster.StepsOutForEvictions = w.Cluster.Moved && !w.Cluster.StepsOutForEvictions
	})
	w.cordons(add)
	add("changes the policy", func() { w.Cluster.Policy = (w.Cluster.Policy + 1) % 3 })
	if w.Cluster.Routers {
		add("wants no routers", func() { w.Cluster.Routers, w.Cluster.Exclusive, w.Table = false, false, nil })
	} else {
		add("wants routers", w.routers)
	}
	w.warmDeeds(add)
	return all
}

// settled tells whether the cluster is as wanted, and no step waits.
func (w *walk) settled(p *Plan) bool {
	calm := (!p.Warming.Open || p.Replicas == 0) && !slices.ContainsFunc(p.Drains, func(d claims.DrainState) bool {
		return d.Phase != claims.Held && d.Phase != claims.Failed && d.Reason != claims.Hibernating
	}) && len(p.Moves) == 0
	return calm && (p.Replicas == 0 || w.replaced()) && p.Replicas == w.Cluster.Size && w.StatefulSet.Replicas == p.Replicas && (p.Replicas == 0 || w.ListSize == p.Replicas && w.Record.Ring == w.Cluster.Ring.Of(p.Replicas))
}

// asks returns the action that status asks a person for; nil if it asks for none.
func (w *walk) asks(p *Plan) *happens {
	for _, d := range p.Drains {
		switch d.Phase {
		case claims.Held:
			return &happens{"A PERSON removes the hold of " + d.Claim.Name, func() { w.Claim(d.Claim.UID).Request = claims.NoRequest }}
		case claims.Failed:
			if d.RetryAt.IsZero() {
				return &happens{"A PERSON gives up " + d.Claim.Name + ", which has failed", func() { w.Claim(d.Claim.UID).Request = claims.Skip }}
			}
		}
	}
	for _, d := range p.Moves {
		if d.Phase == MoveFailed && d.RetryAt.IsZero() {
			return &happens{"A PERSON skips the move of " + d.Claim.Name, func() { w.Claim(d.Claim.UID).MoveRequest = claims.Skip }}
		}
	}
	if p.Warming.Phase == WarmFailed && p.Warming.RetryAt.IsZero() {
		return &happens{"A PERSON skips the warming", func() { w.Warm.Asked, w.Warm.Holder.MoveRequest = "skip", claims.Skip }}
	}
	for _, d := range p.DeletedClaims {
		c := w.Claim(d.Claim.UID)
		if c != nil && strings.Contains(d.Message, "drain=skip") && c.Request != claims.Skip {
			return &happens{"A PERSON gives up " + d.Claim.Name + ", which was deleted", func() { w.Claim(d.Claim.UID).Request = claims.Skip }}
		}
	}
	return nil
}

// rest lets all events happen that happen by themselves, until there are no more. Then a step can be taken, a
// time to wake is set, or status asks a person for an action, which the person takes. rest fails if none of
// these is true before the cluster is settled, because then steps wait for each other in a circle.
func (w *walk) rest(t *testing.T) {
	t.Helper()
	for range 2000 {
		p, changed := w.operate(t)
		if changed {
			continue
		}
		// Movers wait for a minute to be told, which is longer than the list waits for them.
		patient := func(e happens) bool { return e.what == notTold }
		next := w.kubernetes()
		if others := slices.DeleteFunc(slices.Clone(next), patient); len(others) > 0 || !p.Wake.IsZero() {
			next = others
		}
		if len(next) > 0 {
			e := next[0]
			if w.r != nil {
				e = next[w.r.IntN(len(next))]
			}
			w.note("%s", e.what)
			e.do()
			w.Now = w.Now.Add(time.Second)
			continue
		}
		asked := w.asks(&p)
		switch {
		case w.settled(&p) && asked == nil:
			return
		case !p.Wake.IsZero():
			w.note("time passes: %s", p.Wake.Sub(w.Now))
			w.Now = w.Now.Add(max(time.Second, p.Wake.Sub(w.Now)))
		case asked != nil:
			w.note("%s", asked.what)
			asked.do()
			w.endClaims()
		default:
			t.Fatalf("nothing runs, and no step, no time and no person is named:\n%s\nblocked %q at %d, running %d\n%s%s",
				strings.Join(w.story, "\n"), p.SizeBlocked, p.Replicas, p.Running, describe(&w.Observed), w.says(&p))
		}
	}
	t.Fatalf("it does not come to rest:\n%s\n%s", strings.Join(w.story[max(0, len(w.story)-200):], "\n"), describe(&w.Observed))
}

func (w *walk) says(p *Plan) (text string) {
	for _, d := range p.Drains {
		text += fmt.Sprintf("  claim %s: %s %s: %s\n", d.Claim.Name, d.Phase, d.Reason, d.Message)
	}
	for _, s := range p.Moves {
		text += fmt.Sprintf("  move of %s: %s %s: %s\n", s.Claim.Name, s.Phase, s.Reason, s.Message)
	}
	if s := &p.Warming; s.Phase != "" {
		text += fmt.Sprintf("  warming: %s %s: %s\n", s.Phase, s.Reason, s.Message)
	}
	return text
}

var seeds = flag.Uint64("walk.seeds", 0, "how many random histories there are; 0 for few, or more in make test-all")

// walks are how many random histories there are.
func walks() uint64 {
	switch {
	case *seeds > 0:
		return *seeds
	case tier.All():
		return 20_000
	}
	return 1_500
}

// In every scene where nothing runs, a step can be taken, a time to wake is set, or status names
// what a person must do: no drain, move or size waits for another one in a circle.
func TestNothingWaitsInACircle(t *testing.T) {
	for seed := range walks() {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWalk(1+r.Int32N(4), [...]string{"gomemcache", "libmemcached-ketama"}[r.IntN(2)], false)
		w.r = r
		if r.IntN(3) == 0 {
			w.routers()
			if w.Cluster.Moved = r.IntN(2) == 0; w.Cluster.Moved {
				w.wanted++
				w.Cluster.StepsOutForEvictions = r.IntN(2) == 0
			}
		}
		w.note("seed %d: %d members, %s, routers %v", seed, w.Cluster.Size, w.Cluster.Ring.Client, w.Cluster.Routers)
		for range 1 + r.IntN(6) {
			deeds := w.deeds()
			e := deeds[r.IntN(len(deeds))]
			w.note("%s", e.what)
			e.do()
			for range r.IntN(25) {
				w.any(t)
			}
		}
		w.rest(t)
	}
}

// any lets any event but a person's action happen.
func (w *walk) any(t *testing.T) {
	t.Helper()
	next := w.kubernetes()
	switch n := w.r.IntN(100); {
	case n < 4:
		next = w.mishaps()
	case n < 8:
		w.Now = w.Now.Add(time.Minute)
		return
	case n < 50 || len(next) == 0:
		w.operate(t)
		return
	}
	w.Now = w.Now.Add(time.Second)
	if len(next) > 0 {
		e := next[w.r.IntN(len(next))]
		w.note("%s", e.what)
		e.do()
	}
}

// until lets events happen until the condition is true.
func (w *walk) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 200 {
		if so() {
			return
		}
		if _, changed := w.operate(t); changed || so() {
			continue
		}
		if next := w.kubernetes(); len(next) > 0 {
			w.note("%s", next[0].what)
			next[0].do()
		}
		w.Now = w.Now.Add(time.Second)
	}
	t.Fatalf("this never comes about: %s\n%s\n%s", what, strings.Join(w.story, "\n"), describe(&w.Observed))
}

// Two histories that ended in a circle: the older volume waited for the volume that was left later,
// that volume for the move, and the move for the older volume.
func TestHistoriesThatEndedInACircle(t *testing.T) {
	for name, history := range map[string]func(t *testing.T, w *walk){
		"a survivor's claim and pod are deleted before a departed volume is drained": func(t *testing.T, w *walk) {
			w.Cluster.Size = 2
			w.held = func(event string) bool { return event == "pod 2 is gone" }
			w.until(t, "two members stay", func() bool { return w.StatefulSet.Replicas == 2 })
			deletes(w.memberClaim(0))
			w.losePod(0)
			w.held = func(event string) bool { return event == "pod 2 is gone" || event == "member 0 is ready" }
			w.until(t, "the survivor's volume is set aside", func() bool { return w.PodExists(0) })
		},
		"a hibernated cluster returns smaller, with a move that is due on a claim that is made afresh": func(t *testing.T, w *walk) {
			w.Record.Serial, w.Record.From = 1, w.Cluster.Ring.Of(2)
			w.memberClaim(1).Moved = 1
			deletes(w.memberClaim(0))
			w.Cluster.Size = 0
			w.until(t, "the volume is set aside, and its claim is gone", func() bool { return len(w.Pods) == 0 && w.memberClaim(0) == nil })
			w.Cluster.Size = 1
		},
		"the same, and the claim is still being deleted": func(t *testing.T, w *walk) {
			w.Record.Serial, w.Record.From = 1, w.Cluster.Ring.Of(2)
			w.memberClaim(1).Moved = 1
			deletes(w.memberClaim(0))
			w.Cluster.Size = 0
			w.until(t, "no pod is left", func() bool { return len(w.Pods) == 0 })
			w.Cluster.Size = 1
		},
		"a claim appears just after a lower one was marked": func(t *testing.T, w *walk) {
			w.Cluster.Size = 4
			w.held = func(event string) bool { return event == "claim 3 is made" }
			w.until(t, "the StatefulSet has four members", func() bool { return w.StatefulSet.Replicas == 4 })
			w.Cluster.Size, w.Cluster.Patience = 2, 0 // the members leave at once
			w.act(action.MarkLeaving{Claim: w.memberClaim(2).Ref()})
			w.Now = w.Now.Add(time.Second)
			w.held = nil
			for _, e := range w.kubernetes() {
				if e.what == "claim 3 is made" {
					e.do()
				}
			}
		},
	} {
		for _, routers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, routers %v", name, routers), func(t *testing.T) {
				w := newWalk(3, "gomemcache", routers)
				history(t, w)
				w.held = nil
				w.rest(t)
			})
		}
	}
}

// noteHolders notes the pods that clients are told of.
func (w *walk) noteHolders() {
	for i := range w.Claims {
		if c := &w.Claims[i]; c.InPod && w.Record.Ring.Has(c.Ordinal) && c.Ordinal < w.ListSize && slices.Contains(w.Ready, c.Ordinal) {
			w.holds[c.UID] = true
		}
	}
}

// checkShrink fails if a step takes a pod that may have the only copy of an item, although others stay, and nothing
// has given its items up: no person, no policy, no deadline.
func (w *walk) checkShrink(t *testing.T, planned action.Action) {
	t.Helper()
	a, is := planned.(action.ApplyStatefulSet)
	if !is || a.Replicas == 0 || w.Cluster.Size == 0 {
		return
	}
	for i := range w.Claims {
		c := &w.Claims[i]
		givenUp := c.Request == claims.Skip || w.Cluster.MovesOff || !w.Cluster.ToDrain(c) || c.Deleting
		overdue := !c.LeavingSince.IsZero() && !c.LeavingSince.Add(w.Cluster.MoveDeadline).After(w.Now)
		if c.InPod && c.Ordinal >= a.Replicas && w.holds[c.UID] && !givenUp && !overdue {
			t.Fatalf("pod %s goes with its items:\n%s\n%s", c.Name, strings.Join(w.story, "\n"), describe(&w.Observed))
		}
	}
}

// newPodWalk is newWalk for members without volumes.
func newPodWalk(size int32, client string, routers bool) *walk {
	w := newWalk(size, client, routers)
	w.Cluster.InPods, w.holds = true, map[types.UID]bool{}
	for i := range w.Claims {
		w.Claims[i] = w.newClaim(w.Claims[i].Ordinal)
		w.Claims[i].NotStartedYet, w.Claims[i].Unstamped = false, false
	}
	return w
}

// The same histories, with pods in place of claims as holders of the items: nothing waits in a circle, and no pod goes
// that may have the only copy of an item.
func TestNoPodGoesWithTheOnlyCopyOfAnItem(t *testing.T) {
	for seed := range (walks() + 2) / 3 {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newPodWalk(1+r.Int32N(4), [...]string{"gomemcache", "libmemcached-ketama"}[r.IntN(2)], false)
		w.r = r
		if r.IntN(2) == 0 {
			w.routers()
			if r.IntN(2) == 0 {
				w.replaced3()
			}
		}
		w.note("seed %d: %d members, %s, routers %v", seed, w.Cluster.Size, w.Cluster.Ring.Client, w.Cluster.Routers)
		for range 1 + r.IntN(6) {
			deeds := w.deeds()
			e := deeds[r.IntN(len(deeds))]
			w.note("%s", e.what)
			e.do()
			for range r.IntN(25) {
				w.any(t)
			}
		}
		w.rest(t)
	}
}
