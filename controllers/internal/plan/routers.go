package plan

import "example.com/memcached-operator/controllers/internal/action"

// route keeps the routers as the spec wants them. They are told of the clients' list when it is
// written, as any client.
func (p *Plan) route(o *Observed) {
	if !o.Cluster.Routers {
		return
	}
	p.add(action.WriteTable{ListSize: p.ListSize})
	for _, pod := range o.RouterPods {
		p.add(action.TellRouter{Pod: pod})
	}
	p.add(action.ApplyRouters{Part: action.RouterService}, action.ApplyRouters{Part: action.RouterPolicy}, action.ApplyRouters{Part: action.RouterDeployment}, action.ApplyRouters{Part: action.RouterBudget})
}
