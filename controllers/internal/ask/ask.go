// Package ask asks drainers how far they are, members how full they are, and routers which table
// they have acknowledged, because no watch reports that. The questions are asked beside the reconciles (type
// sampler), so a dead node delays no cluster. Logs and answers can't be trusted, so their size and values are
// bounded here.
package ask
