// Command panels draws the panels of a dashboard as SVGs, as Grafana would show them, from a Prometheus that
// has data.
//
//	panels [--last=5m] [--rows=^Members] [--set=namespace=default] PROMETHEUS DASHBOARD FOLDER
//
// PROMETHEUS is its URL, --set a variable of the dashboard; any other is .*. Command panels draws the
// timeseries of the rows, and writes FOLDER/ROW-TITLE.svg.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

type panel struct {
	Type, Title string
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
}

// series is a line of a panel: its name, and its values by time.
type series struct {
	name   string
	values [][2]float64
}

type drawer struct {
	prometheus string
	begin, end time.Time
	variables  map[string]string
	rows       *regexp.Regexp
}

func main() {
	d := drawer{variables: map[string]string{"__rate_interval": "20s"}}
	last := flag.Duration("last", 5*time.Minute, "how much is drawn")
	rows := flag.String("rows", "", "a regular expression of the rows' titles")
	flag.Func("set", "NAME=VALUE of a variable; may be given again", func(s string) error {
		name, value, found := strings.Cut(s, "=")
		if d.variables[name] = value; !found {
			return errors.New("want NAME=VALUE")
		}
		return nil
	})
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: panels [--last=5m] [--rows=^Members] [--set=namespace=default] PROMETHEUS DASHBOARD FOLDER")
		os.Exit(2)
	}
	d.rows = regexp.MustCompile(*rows)
	d.prometheus, d.end = flag.Arg(0), time.Now()
	d.begin = d.end.Add(-*last)
	if err := d.dashboard(flag.Arg(1), flag.Arg(2)); err != nil {
		fmt.Fprintln(os.Stderr, "panels:", err)
		os.Exit(1)
	}
}

func (d *drawer) dashboard(file, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	row := ""
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		if p.Type != "timeseries" || !d.rows.MatchString(row) {
			continue
		}
		lines, err := d.lines(&p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Title, err)
		}
		name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(row+"-"+p.Title), "-"), "-")
		if err := os.WriteFile(filepath.Join(folder, name+".svg"), d.draw(&p, lines), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var variable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// lines asks for the panel's series.
func (d *drawer) lines(p *panel) (all []series, err error) {
	for _, t := range p.Targets {
		query := variable.ReplaceAllStringFunc(t.Expr, func(name string) string {
			if value, set := d.variables[variable.FindStringSubmatch(name)[1]]; set {
				return value
			}
			return ".*"
		})
		var answer struct {
			Error string
			Data  struct {
				Result []struct {
					Metric map[string]string
					Values [][2]any
				}
			}
		}
		if err := d.get("/api/v1/query_range?"+url.Values{"query": {query}, "step": {"1"},
			"start": {strconv.FormatInt(d.begin.Unix(), 10)}, "end": {strconv.FormatInt(d.end.Unix(), 10)}}.Encode(), &answer); err != nil {
			return nil, err
		}
		if answer.Error != "" {
			return nil, fmt.Errorf("%s: %s", query, answer.Error)
		}
		for _, r := range answer.Data.Result {
			s := series{name: legend(t.LegendFormat, r.Metric)}
			for _, v := range r.Values {
				at, _ := v[0].(float64)
				text, _ := v[1].(string)
				if y, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(y) && !math.IsInf(y, 0) {
					s.values = append(s.values, [2]float64{at, y})
				}
			}
			all = append(all, s)
		}
	}
	return all, nil
}

func (d *drawer) get(path string, into any) error {
	response, err := http.Get(d.prometheus + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

var label = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// legend is a series' name, as Grafana makes it.
func legend(format string, labels map[string]string) string {
	if format == "__auto" && len(labels) == 1 {
		for _, value := range labels {
			return value
		}
	}
	if format != "" && format != "__auto" {
		return label.ReplaceAllStringFunc(format, func(name string) string { return labels[label.FindStringSubmatch(name)[1]] })
	}
	return fmt.Sprint(labels)[len("map"):]
}

// The size of a drawing, and where its axes are, in pixels.
const (
	width, height = 480, 200
	left, right   = 64, 470
	top, bottom   = 28, 150
	ticks         = 4
	most          = 6 // series in the legend
)

var colours = [...]string{"#1668b3", "#d98c00", "#2a8a3e", "#c22", "#7a4fb5", "#666"}

func (d *drawer) draw(p *panel, lines []series) []byte {
	highest := 0.0
	for _, s := range lines {
		for _, v := range s.values {
			highest = max(highest, v[1])
		}
	}
	if highest == 0 {
		highest = 1
	}
	x := func(at float64) float64 {
		return left + (right-left)*(at-float64(d.begin.Unix()))/d.end.Sub(d.begin).Seconds()
	}
	y := func(value float64) float64 { return bottom - (bottom-top)*max(0, value)/highest }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10" fill="#333">`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="16" font-size="12">%s</text>`+"\n", left, html.EscapeString(p.Title))
	for i := range ticks + 1 {
		value := highest * float64(i) / ticks
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y(value), right, left-6, y(value)+3, number(value, p.FieldConfig.Defaults.Unit))
	}
	for i, s := range lines {
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="1.5" d="`, colour)
		for j, v := range s.values {
			move := "L"
			if j == 0 || v[0]-s.values[j-1][0] > 5 { // a gap
				move = "M"
			}
			fmt.Fprintf(&b, "%s%.1f %.1f", move, x(v[0]), y(v[1]))
		}
		b.WriteString(`"/>` + "\n")
		if i < most {
			fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", left+(i%3)*(right-left)/3, bottom+18+14*(i/3), colour, html.EscapeString(s.name))
		}
	}
	if len(lines) > most {
		fmt.Fprintf(&b, `<text x="%d" y="%d">and %d more</text>`+"\n", left, height-4, len(lines)-most)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n</svg>\n", right, height-4, "the last "+d.end.Sub(d.begin).String())
	return b.Bytes()
}

// number is a value on the axis, in Grafana's unit.
func number(value float64, unit string) string {
	switch unit {
	case "percentunit":
		return fmt.Sprintf("%.0f %%", 100*value)
	case "s":
		return time.Duration(value * float64(time.Second)).Round(time.Microsecond).String()
	case "bytes", "Bps", "decbytes", "binBps":
		for _, prefix := range []string{"", "Ki", "Mi"} {
			if value < 1024 {
				return fmt.Sprintf("%.4g %sB", value, prefix)
			}
			value /= 1024
		}
		return fmt.Sprintf("%.4g GiB", value)
	}
	return fmt.Sprintf("%.4g", value)
}
