package contract

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// OneLine returns an error's text in one line for logs and status, without the path where the volume is mounted.
func OneLine(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return filepath.Base(p.Path) + ": " + p.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
