package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
)

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "json or yaml, for programs; lines for people by default")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput returns an error for an unknown format.
func checkOutput(format string) error {
	switch format {
	case "", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output is json or yaml, not %q", format)
}

// print prints the object in the format, or else the lines.
func (c *command) print(format string, object any, lines func() []string) error {
	switch format {
	case "json":
		out := json.NewEncoder(c.io.Out)
		out.SetIndent("", "  ")
		return out.Encode(object)
	case "yaml":
		text, err := yaml.Marshal(object)
		if err == nil {
			_, err = c.io.Out.Write(text)
		}
		return err
	}
	for _, line := range lines() {
		if _, err := fmt.Fprintln(c.io.Out, screen.Plain(line)); err != nil {
			return err
		}
	}
	return nil
}

// terminal is the width and the height of the terminal that output goes to; is tells whether it does.
func terminal(out io.Writer) (width, height int, is bool) {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		const usual, usually = 80, 24
		return usual, usually, true
	}
	return width, height, true
}

// style has colours on a terminal that has them, unless NO_COLOR is set (no-color.org).
func (c *command) style() screen.Style {
	_, _, is := terminal(c.io.Out)
	return screen.Style{Colours: is && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}
