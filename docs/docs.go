// Package docs has the documentation, for a program that has to know its words.
package docs

import "embed"

// Pages are the pages, and those on the design.
//
//go:embed *.md design/*.md
var Pages embed.FS
