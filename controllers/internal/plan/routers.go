package plan

// route keeps the routers as the spec wants them. They are told of the clients' list when it is
// written, as any client.
func (p *Plan) route(o *Observed) {
	if !o.Cluster.Routers {
		return
	}
	p.add(WriteTable{p.ListSize})
	for _, pod := range o.RouterPods {
		p.add(TellRouter{pod})
	}
	p.add(ApplyRouters{RouterService}, ApplyRouters{RouterPolicy}, ApplyRouters{RouterDeployment}, ApplyRouters{RouterBudget})
}
