// Package ask asks drainers how far they are, and members how full they are, because no
// watch tells either. It asks beside the reconciles (package sampler), so that a dead
// node delays no cluster. Anybody may have written a log or an answer, so both are
// bounded here.
package ask
