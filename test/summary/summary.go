// Package summary collects lines of tests for the end of `make test`.
package summary

import (
	"fmt"
	"os"
)

// File is the variable that names the file to which lines are added.
const File = "TEST_COUNTS"

// Add prints a line, and keeps it for the end of all tests.
func Add(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	fmt.Println(line)
	path := os.Getenv(File)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keep a line of the summary: %w", err)
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		_ = f.Close()
		return fmt.Errorf("keep a line of the summary: %w", err)
	}
	return f.Close()
}
