package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/routing"
)

// maxLine bounds a line of standard input, in bytes. memcached's own limit for a key is 250.
const maxLine = 64 << 10

// ownerFlags are the arguments of "drainer owner".
type ownerFlags struct {
	routing routingFlags
	moved   bool
	after   serverList
}

func (f *ownerFlags) parse(line []string, std commandline.IO) error {
	fs := commandline.NewFlags("owner")
	f.routing.add(fs)
	fs.BoolVar(&f.moved, "moved", false, "count the keys that get another owner when the list goes from --server to --after")
	fs.Var(&f.after, "after", "with --moved: a server of the list that comes after, like --server")
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	if err := commandline.NoArguments(fs); err != nil {
		return err
	}
	switch {
	case f.moved && len(f.after) == 0:
		return commandline.Usagef("--moved needs --after, once per server of the later list")
	case !f.moved && len(f.after) > 0:
		return commandline.Usagef("--after needs --moved")
	}
	return nil
}

// runOwner prints the owner of each key of standard input, or counts the keys that have another owner with
// another list.
func runOwner(ctx context.Context, line []string, std commandline.IO) error {
	var f ownerFlags
	if err := f.parse(line, std); err != nil {
		return err
	}
	before, err := f.list(ctx, f.routing.servers)
	if err != nil {
		return err
	}
	if !f.moved {
		return printOwners(before, std)
	}
	after, err := f.list(ctx, f.after)
	if err != nil {
		return err
	}
	return printMoved(routing.Compare(before, after), std)
}

// list names the servers as the client does.
func (f *ownerFlags) list(ctx context.Context, servers []routing.Server) (routing.List, error) {
	r := f.routing
	r.servers = servers
	var err error
	if r.servers, err = r.resolved(ctx, servers); err != nil {
		return routing.List{}, err
	}
	owner, err := r.owner()
	return routing.List{Servers: r.servers, Owner: owner}, err
}

func printOwners(l routing.List, std commandline.IO) error {
	names := make([]string, len(l.Servers))
	for i, s := range l.Servers {
		names[i] = "\t" + s.String() + "\n"
	}
	out := bufio.NewWriterSize(std.Out, maxLine)
	err := eachKey(std.In, func(key []byte) {
		out.Write(key) // Flush returns the first error
		out.WriteString(names[l.Owner.Owner(key)])
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

func printMoved(c *routing.Comparison, std commandline.IO) error {
	if err := eachKey(std.In, c.Count); err != nil {
		return err
	}
	s := c.Shares()
	_, err := fmt.Fprintf(std.Out, "keys\t%d\nget another owner\t%d\t%.2f%%\nof these, between servers in both lists\t%d\t%.2f%%\n",
		c.Keys, c.Leaving+c.Arriving+c.Others, 100*(s.Leaving+s.Arriving+s.Others), c.Others, 100*s.Others)
	return err
}

// eachKey calls do for each line that isn't empty.
func eachKey(r io.Reader, do func(key []byte)) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, maxLine), maxLine)
	for in.Scan() {
		if key := in.Bytes(); len(key) > 0 {
			do(key)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	return nil
}
