package action_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
)

type kindOf struct {
	action action.Action
	want   action.Kind
}

// kinds has the kind of each action about the claim uid-2.
func kinds() []kindOf {
	ref := action.ClaimRef{Name: "data-2", UID: "uid-2", Ordinal: 2}
	all, members, beside := action.Kind{Class: action.Cluster}, action.Kind{Class: action.Members}, action.Kind{Class: action.Beside}
	claim := action.Kind{Class: action.Claim, Claim: "uid-2"}
	reads := func(k action.Kind) action.Kind { k.ReadsAgain = true; return k }
	ends := func(k action.Kind) action.Kind { k.EndsJob = true; return reads(k) }
	makes := func(k action.Kind) action.Kind { k.MakesJob = true; return k }
	owns := func(k action.Kind) action.Kind { k.Owns = true; return k }
	about := func(k action.Kind) action.Kind { k.Claim = "uid-2"; return k }
	return []kindOf{
		{action.AddOwnerFinalizer{}, all},
		{action.RemoveOwnerFinalizer{}, all},
		{action.DeleteMembers{}, reads(all)},

		{action.ApplyService{}, members},
		{action.WriteList{}, members},
		{action.WriteEndpoints{}, members},
		{action.TellMember{}, members},
		{action.WriteTable{}, reads(members)},
		{action.ApplyNetworkPolicy{}, members},
		{action.ApplyStatefulSet{}, owns(members)},
		{action.ApplyDeployment{}, owns(members)},
		{action.ApplyMemberService{}, members},
		{action.RetireMemberService{}, members},
		{action.DeleteMemberService{}, members},

		{action.MarkLeaving{Claim: ref}, about(members)},
		{action.StampPod{Claim: ref}, reads(about(members))},

		{action.ApplyListService{}, beside},
		{action.ApplyDiscovery{}, beside},
		{action.ApplyRouters{}, beside},
		{action.TellRouter{}, beside},
		{action.WriteBinding{}, beside},
		{action.StartEmpty{}, beside},
		{action.EndAside{}, beside},
		{action.ApplyBudget{}, beside},
		{action.ApplyServiceMonitor{}, beside},
		{action.OpenPartition{}, beside},
		{action.Wake{}, beside},

		{action.AddClaimFinalizer{Claim: ref}, reads(claim)},
		{action.RecordReceipt{Claim: ref}, reads(claim)},
		{action.CountFailure{Claim: ref}, reads(claim)},
		{action.DeleteClaim{Claim: ref}, reads(claim)},
		{action.SetAside{Claim: ref}, reads(claim)},
		{action.ReserveVolume{Claim: ref}, reads(claim)},
		{action.CreateAside{Claim: ref}, reads(claim)},
		{action.ReturnVolume{Claim: ref}, reads(claim)},
		{action.GrowClaim{Claim: ref}, reads(claim)},
		{action.CarryOver{From: ref}, reads(claim)},
		{action.NoteRestored{Claim: ref}, reads(claim)},
		{action.SkipToo{Claim: ref}, reads(claim)},
		{action.Protect{Claim: ref}, reads(claim)},
		{action.Label{Claim: ref}, reads(claim)},
		{action.Mark{Claim: ref}, reads(claim)},
		{action.Unmark{Claim: ref}, reads(claim)},
		{action.Unlabel{Claim: ref}, reads(claim)},

		{action.BeginMove{Claim: ref}, claim},
		{action.CreateDrain{Claim: ref}, makes(claim)},
		{action.CreateMove{Claim: ref}, makes(claim)},
		{action.CreateWarm{Claim: ref}, makes(claim)},
		{action.DeleteJob{ClaimUID: "uid-2"}, ends(claim)},
		{action.ClearRetry{Claim: ref}, ends(claim)},
		{action.ClearMoveRetry{Claim: ref}, ends(claim)},
		{action.RecordMoved{Claim: ref}, ends(claim)},
		{action.RecordWarm{Claim: ref}, ends(claim)},
		{action.ClearWarm{Claim: ref}, ends(claim)},
		{action.ReleaseClaim{Claim: ref}, ends(claim)},
	}
}

// A failed step stops those of its class, or those about the same claim. The kind says so, and what a step does to live
// reads and Jobs.
func TestEachActionHasItsKind(t *testing.T) {
	tested := map[string]bool{}
	for _, test := range kinds() {
		tested[strings.TrimPrefix(fmt.Sprintf("%T", test.action), "action.")] = true
		if diff := cmp.Diff(test.want, action.KindOf(test.action)); diff != "" {
			t.Errorf("%T: -want +got:\n%s", test.action, diff)
		}
	}
	for _, name := range actionsIn(t, ".") {
		if !tested[name] {
			t.Errorf("the kind of %s is not tested", name)
		}
		delete(tested, name)
	}
	if len(tested) > 0 {
		t.Errorf("these are no actions: %v", slices.Sorted(maps.Keys(tested)))
	}
}

// actionsIn returns the names of the types with a method named kind.
func actionsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv != nil && f.Name.Name == "kind" {
				names = append(names, f.Recv.List[0].Type.(*ast.Ident).Name)
			}
		}
	}
	return names
}
