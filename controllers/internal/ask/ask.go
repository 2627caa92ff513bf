// Package ask asks drainers how far they are, and members how full they are: no watch
// tells of either. It asks beside the reconciles (package sampler), so that a node that is
// dead holds up no cluster. What a log or a member says is input that anybody may have
// written: it is bounded here.
package ask
