package plan

// Next plans the next steps for a cluster.
func Next(seen *Observed) Plan {
	o := seen.inOrder()
	switch {
	case o.Cluster.Plain:
		return plain(o)
	case o.Cluster.InPods && o.Cluster.Deleting:
		return Plan{Told: Told{Record: o.Record}} // the garbage collector does everything
	case o.Cluster.Deleting || o.Cluster.NamespaceTerminating:
		return Plan{Work: decideEnd(o), Told: Told{Record: o.Record}}
	}
	d := decide(o)
	for i := range steps {
		d.Then(steps[i].work(d))
	}
	return d.Plan
}
