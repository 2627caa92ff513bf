package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"example.com/memcached-operator/test/cluster/internal/cluster"
	"example.com/memcached-operator/test/cluster/internal/host"
)

const usage = `usage: cluster build|up|down|status|load [--root DIR]
       cluster up --nodes N
       cluster node stop|start|remove NODE`

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// If the reader of the output ends early, as head does, no step may stop halfway.
	signal.Ignore(syscall.SIGPIPE)
	command, args := args[0], args[1:]
	if command == "hold" {
		return hold(ctx, args)
	}
	flags := flag.NewFlagSet("cluster "+command, flag.ContinueOnError)
	root := flags.String("root", ".", "the clone of the repository that programs and images are built from")
	nodes := 1
	if command == "up" {
		flags.IntVar(&nodes, "nodes", 1, "how many nodes there are to be, at least")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	absolute, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	source := cluster.Source{Root: absolute, Bin: filepath.Join(absolute, "bin")}
	report := cluster.NewReport(os.Stdout)
	if command == "build" {
		return source.Build(ctx, report)
	}
	commands := map[string]func() error{
		"up":     func() error { return cluster.Up(ctx, source, nodes, report) },
		"down":   func() error { return cluster.Down(ctx, report) },
		"status": func() error { return cluster.Status(ctx, report) },
		"load":   func() error { return cluster.Load(ctx, source, report) },
		"node":   func() error { return node(ctx, source, flags.Args(), report) },
	}
	do, ok := commands[command]
	if !ok {
		return errors.New(usage)
	}
	if os.Geteuid() != 0 {
		return errors.New("the cluster needs root (namespaces, mounts, iptables): run make as root, or use any cluster in KUBECONFIG instead: make demo CLUSTER=existing")
	}
	return do()
}

// node stops, starts or removes one node of the cluster.
func node(ctx context.Context, source cluster.Source, args []string, report *cluster.Report) error {
	if len(args) != 2 {
		return errors.New(usage)
	}
	switch command, name := args[0], args[1]; command {
	case "stop":
		return cluster.StopNode(ctx, name, report)
	case "start":
		return cluster.StartNode(ctx, source, name, report)
	case "remove":
		return cluster.RemoveNode(ctx, name, report)
	}
	return errors.New(usage)
}

// hold is for a node's first process, and not for people.
func hold(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster hold", flag.ContinueOnError)
	ready := flags.String("ready", "", "file to make once the namespaces are set up")
	var binds []host.Bind
	flags.Func("bind", "SOURCE:TARGET, directory to show at another path", func(text string) error {
		source, target, ok := strings.Cut(text, ":")
		if !ok {
			return fmt.Errorf("%q is not SOURCE:TARGET", text)
		}
		binds = append(binds, host.Bind{Source: source, Target: target})
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	return host.Hold(ctx, binds, *ready)
}
