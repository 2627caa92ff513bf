// Package ask asks drainers how far they are, members how full they are, and routers which
// table they have acknowledged, because no watch tells that. It asks beside the reconciles
// (type sampler), so that a dead node delays no cluster. Anybody may have written a log or an
// answer, so both are bounded here.
package ask
