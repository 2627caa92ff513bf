// Command image builds container images without a container engine: tar files
// that containerd and Docker can load.
//
//	image program   --name NAME --program FILE --output FILE
//	image operator  --name NAME --manager FILE --drainer FILE --output FILE
//	image memcached --name NAME --output FILE
//	image redis     --name NAME --program FILE --output FILE
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

const usage = "usage: image program|operator|memcached|redis --name NAME --output FILE …"

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
	flags := flag.NewFlagSet("image "+args[0], flag.ContinueOnError)
	name := flags.String("name", "", "the image's name, with a tag")
	output := flags.String("output", "", "file to write")
	program := flags.String("program", "", "program, redis: static binary")
	manager := flags.String("manager", "", "operator: static binary")
	drainer := flags.String("drainer", "", "operator: static binary")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *name == "" || *output == "" {
		return errors.New(usage)
	}
	var files []file
	var config v1.Config
	var err error
	switch args[0] {
	case "program":
		files, config, err = programImage(*program)
	case "operator":
		files, config, err = operatorImage(*manager, *drainer)
	case "memcached":
		files, config, err = memcachedImage(ctx)
	case "redis":
		files, config, err = redisImage(ctx, *program)
	default:
		return errors.New(usage)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return write(*name, *output, runtime.GOARCH, files, config)
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

// certificates is Debian's file of certificate authorities.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

func operatorImage(manager, drainer string) ([]file, v1.Config, error) {
	files := accounts("nonroot", 65532)
	for path, program := range map[string]string{"/manager": manager, "/drainer": drainer} {
		binary, err := static(path, program)
		if err != nil {
			return nil, v1.Config{}, err
		}
		files = append(files, binary)
	}
	if content, err := os.ReadFile(certificates); err == nil {
		files = append(files, file{path: certificates, mode: 0o644, content: content})
	}
	return files, v1.Config{
		Entrypoint: []string{"/manager"},
		Env:        []string{defaultPath},
		WorkingDir: "/",
		User:       "65532:65532",
	}, nil
}
