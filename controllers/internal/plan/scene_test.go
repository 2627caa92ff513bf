package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// scene builds an Observed. A scene begins at rest, at the wanted size.
type scene struct{ o Observed }

func at(size int32) *scene {
	s := &scene{}
	s.o.Cluster = Cluster{Size: size, Parallelism: 1, Finalizer: true}
	s.o.StatefulSet = StatefulSet{Exists: true, Replicas: size}
	s.o.Cluster.Ring = ring.Ring{Client: "libmemcached-ketama", Port: 11211} // moves no keys of members that stay
	s.o.ListSize, s.o.Record.Ring = size, s.o.Cluster.Ring.Of(size)
	for i := range size {
		s.o.Pods = append(s.o.Pods, i)
		s.member(i)
	}
	return s
}

func uid(ordinal int32) types.UID { return types.UID(fmt.Sprintf("uid-%d", ordinal)) }

func name(ordinal int32) string { return fmt.Sprintf("data-%d", ordinal) }

func volume(ordinal int32) string { return fmt.Sprintf("pv-%d", ordinal) }

// member adds the claim of a member.
func (s *scene) member(ordinal int32) *scene {
	s.o.Claims = append(s.o.Claims, claims.Claim{Name: name(ordinal), UID: uid(ordinal), Ordinal: ordinal, Finalizer: true, Volume: volume(ordinal), AsideName: name(ordinal) + "-aside"})
	return s
}

// left adds the claim of a member that has left, with changes to it.
func (s *scene) left(ordinal int32, changes ...func(*claims.Claim)) *scene {
	s.member(ordinal)
	c := &s.o.Claims[len(s.o.Claims)-1]
	c.LeavingSince = time.Unix(1000, 0)
	for _, change := range changes {
		change(c)
	}
	return s
}

// aside adds the claim that takes over the volume of a claim.
func (s *scene) aside(ordinal int32, changes ...func(*claims.Claim)) *scene {
	return s.left(ordinal, append([]func(*claims.Claim){func(c *claims.Claim) {
		c.Name, c.UID, c.Aside, c.AsideName = name(ordinal)+"-aside", uid(ordinal)+"-aside", true, name(ordinal)+"-next"
	}}, changes...)...)
}

// marked adds the leaving mark to the claim of a member that exists.
func marked(s *scene, ordinal int32) *scene {
	return s.change(ordinal, func(c *claims.Claim) { c.LeavingSince = time.Unix(1000, 0) })
}

func (s *scene) with(change func(*Observed)) *scene {
	change(&s.o)
	return s
}

// pod adds the pod of a member.
func (s *scene) pod(ordinal int32) *scene {
	s.o.Pods = append(s.o.Pods, ordinal)
	return s
}

// job adds the Job that drains the claim into the survivors.
func (s *scene) job(ordinal, survivors int32, changes ...func(*claims.Job)) *scene {
	j := claims.Job{Name: "job-" + name(ordinal), UID: "job-" + uid(ordinal), ClaimUID: uid(ordinal), Survivors: action.Range{Count: survivors}}
	for _, change := range changes {
		change(&j)
	}
	s.o.Jobs = append(s.o.Jobs, j)
	return s
}

func (s *scene) wanted(size int32) *scene {
	s.o.Cluster.Size = size
	return s
}

// Changes to a claim.
func where(w claims.Where) func(*claims.Claim)       { return func(c *claims.Claim) { c.Where = w } }
func requested(r claims.Request) func(*claims.Claim) { return func(c *claims.Claim) { c.Request = r } }
func deleting(c *claims.Claim)                       { c.Deleting, c.Where = true, claims.Here }
func inUse(c *claims.Claim)                          { c.InUse = true }
func pending(c *claims.Claim)                        { c.Pending = true }
func unbound(c *claims.Claim)                        { c.Volume = "" }
func unheld(c *claims.Claim)                         { c.Finalizer = false }
func drained(c *claims.Claim)                        { c.Receipt = receiptFor(c.UID) }

// Changes to a Job.
func gone(j *claims.Job) { j.Deleting = true }

func complete(j *claims.Job) {
	j.State, j.Receipt = claims.JobComplete, receiptFor(j.ClaimUID)
}

func withoutReceipt(j *claims.Job) {
	j.State, j.Receipt, j.ReceiptErr = claims.JobComplete, nil, errors.New("the drainer left no receipt")
}

func unreadable(j *claims.Job) {
	j.State = claims.JobFailed
	j.Receipt = failedWith(j.ClaimUID, contract.ExitUnrecoverable)
}

func outOfTime(j *claims.Job) {
	j.State, j.Message, j.ReceiptErr = claims.JobFailed, "Job job: DeadlineExceeded", errors.New("the drainer's pod is gone")
}

// podKept: another container keeps its pod running.
func podKept(j *claims.Job) { j.PodKept = true }

func receiptFor(claim types.UID) *action.Receipt { return counted(string(claim), 10) }

// shortOf misses an item.
func shortOf(claim types.UID) *action.Receipt { return counted(string(claim), 11) }

func counted(source string, found int64) *action.Receipt {
	return ReceiptOf(&contract.Receipt{
		Version: 1, Source: source, Complete: true, Found: found,
		Outcomes: contract.Outcomes{Added: 4, AlreadyPresent: 3, Expired: 2, Invalidated: 1},
	})
}

func failedWith(claim types.UID, exitCode int) *action.Receipt {
	return ReceiptOf(&contract.Receipt{Version: 1, Source: string(claim), Reason: "SourceCorrupt", Message: "page 3 is torn", ExitCode: exitCode})
}

// target is the name of the ring in a plan's strings.
const target = "5-cafe"

// by is the name of the ring, without lost members.
func (s *scene) by(lost ...int32) string { return TargetWithout(s.o.Record.Target(), lost) }

// outcome is a plan as strings, without the steps that every plan begins and ends with.
type outcome struct {
	Replicas int32
	Blocked  Block
	Actions  []string
	Drains   []string
	Moves    []string
	Lost     []string
}

func planned(s *scene) outcome {
	p := Next(&s.o)
	out := outcome{Replicas: p.Replicas, Blocked: p.SizeBlocked}
	by := p.Record
	if p.Prepares {
		by = by.Next(s.o.Cluster.Ring.Of(p.Replicas))
	}
	for _, a := range p.Actions {
		switch a.(type) {
		case action.ApplyService, action.ApplyListService, action.ApplyDiscovery, action.WriteList, action.WriteEndpoints, action.TellMember, action.WriteTable, action.TellRouter, action.ApplyRouters, action.ApplyNetworkPolicy, action.WriteBinding, action.ApplyBudget, action.ApplyServiceMonitor, action.ApplyMemberService:
		default:
			out.Actions = append(out.Actions, strings.ReplaceAll(a.String(), by.Target(), target))
		}
	}
	for _, d := range p.Drains {
		word := fmt.Sprintf("%d %s", d.Claim.Ordinal, d.Phase)
		if d.Reason != "" {
			word += " " + d.Reason
		}
		if d.Why != "" {
			word += " " + string(d.Why)
		}
		out.Drains = append(out.Drains, word)
	}
	for _, s := range p.Moves {
		word := fmt.Sprintf("%d %s", s.Claim.Ordinal, s.Phase)
		if s.Reason != "" {
			word += " " + s.Reason
		}
		out.Moves = append(out.Moves, word)
	}
	for _, c := range p.DeletedClaims {
		out.Lost = append(out.Lost, c.Claim.Name)
	}
	return out
}
