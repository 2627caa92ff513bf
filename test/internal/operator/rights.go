package operator

import (
	"net/http"
	"strings"
	"sync"
)

// Right is the right that RBAC asks for a request.
type Right struct{ Group, Resource, Verb string }

// used has the rights that the requests of all operators needed.
var used sync.Map

// Used tells whether any request of any operator in this process needed the right. A watch takes the right to
// list, too, for an API server that doesn't begin a watch with the existing objects.
func Used(r Right) bool {
	_, ok := used.Load(r)
	if !ok && r.Verb == "list" {
		r.Verb = "watch"
		_, ok = used.Load(r)
	}
	return ok
}

func noteRight(req *http.Request) {
	group, resource, name := target(req)
	if resource == "" {
		return
	}
	verb := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[req.Method]
	switch {
	case verb != "":
	case req.URL.Query().Get("watch") != "":
		verb = "watch"
	case name == "":
		verb = "list"
	default:
		verb = "get"
	}
	used.Store(Right{Group: group, Resource: resource, Verb: verb}, true)
	if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
		used.Store(Right{Group: group, Resource: resource, Verb: "create"}, true) // the name of a new object is not in the path
	}
}
