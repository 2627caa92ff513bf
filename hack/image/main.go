// Command image builds container images without a container engine: tar files
// that containerd and Docker can load, and OCI image layouts for registries.
//
//	image program   --name NAME --program FILE --output FILE
//	image operator  --name NAME --manager FILE --drainer FILE --output FILE
//	image memcached --name NAME --output FILE
//	image redis     --name NAME --program FILE --output FILE
//
// A release has layouts, and a chart that names the first one's digest, which this prints:
//
//	image layout       --name NAME --binaries FOLDER --output FILE
//	image chart        --name NAME --digest DIGEST [--memcached NAME] --version VERSION --chart FOLDER --output FILE
//	image chart-layout --chart FILE --output FILE
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const usage = "usage: image program|operator|memcached|redis|layout|chart|chart-layout --name NAME --output FILE …"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var o options
	if err := o.parse(args); err != nil {
		return err
	}
	var files []file
	var config v1.Config
	var err error
	switch args[0] {
	case "layout":
		return printed(operatorLayout(o.name, o.binaries, o.output))
	case "chart":
		return chartPackage(o.chart, o.version, o.name, o.digest, o.memcached, o.output)
	case "chart-layout":
		return printed(chartLayout(o.chart, o.output))
	case "program":
		files, config, err = programImage(o.program)
	case "operator":
		files, config, err = operatorImage(o.manager, o.drainer)
	case "memcached":
		files, config, err = memcachedImage(ctx)
	case "redis":
		files, config, err = redisImage(ctx, o.program)
	default:
		return errors.New(usage)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return write(o.name, o.output, runtime.GOARCH, files, config)
}

type options struct {
	name, output, program, manager, drainer string
	binaries, chart, version, digest        string
	memcached                               string
}

func (o *options) parse(args []string) error {
	flags := flag.NewFlagSet("image "+args[0], flag.ContinueOnError)
	flags.StringVar(&o.name, "name", "", "the image's name, with a tag")
	flags.StringVar(&o.output, "output", "", "file to write")
	flags.StringVar(&o.program, "program", "", "program, redis: static binary")
	flags.StringVar(&o.manager, "manager", "", "operator: static binary")
	flags.StringVar(&o.drainer, "drainer", "", "operator: static binary")
	flags.StringVar(&o.binaries, "binaries", "", "layout: folder with linux-amd64/manager, linux-amd64/drainer, linux-arm64/…")
	flags.StringVar(&o.chart, "chart", "", "chart: its folder; chart-layout: its package")
	flags.StringVar(&o.version, "version", "", "chart: the release's version, v1.2.3")
	flags.StringVar(&o.digest, "digest", "", "chart: of the operator's image")
	flags.StringVar(&o.memcached, "memcached", "", "chart: the members' image, if not the chart's own")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.output == "" || o.name == "" && args[0] != "chart-layout" {
		return errors.New(usage)
	}
	return nil
}

// printed prints a digest.
func printed(digest string, err error) error {
	if err == nil {
		fmt.Println(digest)
	}
	return err
}

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// accounts are the files that name a user, for programs that look up their own name.
func accounts(user string, id int) []file {
	return []file{
		{path: "/etc/passwd", mode: 0o644, content: fmt.Appendf(nil,
			"root:x:0:0:root:/root:/sbin/nologin\n%s:x:%d:%d:%[1]s:/:/sbin/nologin\n", user, id, id)},
		{path: "/etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", user, id)},
	}
}

// programImage contains nothing but the program.
func programImage(program string) ([]file, v1.Config, error) {
	target := "/" + filepath.Base(program)
	binary, err := static(target, program)
	return []file{binary}, v1.Config{Entrypoint: []string{target}, User: "65535:65535"}, err
}

// operatorImage contains both programs. The programs check certificates against authorities of Secrets, so
// the image has no authorities.
func operatorImage(manager, drainer string) ([]file, v1.Config, error) {
	files := accounts("nonroot", 65532)
	for path, program := range map[string]string{"/manager": manager, "/drainer": drainer} {
		binary, err := static(path, program)
		if err != nil {
			return nil, v1.Config{}, err
		}
		files = append(files, binary)
	}
	return files, v1.Config{
		Entrypoint: []string{"/manager"},
		Env:        []string{defaultPath},
		WorkingDir: "/",
		User:       "65532:65532",
	}, nil
}
