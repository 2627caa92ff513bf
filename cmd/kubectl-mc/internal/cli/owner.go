package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/kube"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/members"
	"example.com/memcached-operator/cmd/kubectl-mc/internal/screen"
	"example.com/memcached-operator/controllers"
)

// owned is a key, and the member where clients look for it.
type owned struct {
	Key     string `json:"key"`
	Member  string `json:"member"`
	Server  string `json:"server"`
	Node    string `json:"node,omitempty"`
	Address string `json:"address,omitempty"`
	pod     *corev1.Pod
}

// owners finds the members of a cluster's keys.
type owners struct {
	*kube.Session
	m    *cachev1alpha1.Memcached
	pods map[string]*corev1.Pod
	find func(key string) owned
}

func (c *command) owners(ctx context.Context, name string) (*owners, error) {
	s, err := c.open()
	if err != nil {
		return nil, err
	}
	o := &owners{Session: s, pods: map[string]*corev1.Pod{}}
	if o.m, err = s.Memcached(ctx, name); err != nil {
		return nil, err
	}
	pods, err := s.Pods(ctx, o.m)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		o.pods[pods[i].Name] = &pods[i]
	}
	list, err := controllers.Where(ctx, o.m, o.lookup)
	if err != nil {
		return nil, err
	}
	for _, where := range elsewhere(o.m) {
		fmt.Fprintf(c.io.ErrOut, "warning: an item may still be %s: it comes to its owner later, also after a delete there\n", where)
	}
	o.find = func(key string) owned {
		i := list.Owner.Owner([]byte(key))
		at := owned{Key: key, Member: fmt.Sprintf("%s-%d", o.m.Name, i), Server: list.Servers[i].String()}
		if at.pod = o.pods[at.Member]; at.pod != nil {
			at.Node, at.Address = at.pod.Spec.NodeName, at.pod.Status.PodIP
		}
		return at
	}
	return o, nil
}

// elsewhere returns the places of items that are not at the members where clients look for them.
func elsewhere(m *cachev1alpha1.Memcached) (places []string) {
	if m.Status.Moving > 0 {
		places = append(places, "at the member where clients looked before")
	}
	if m.Status.Draining > 0 {
		places = append(places, "on the volume of a member that leaves or has left")
	}
	return places
}

// lookup is for clients that hash addresses: those of the members' Services, or else of their pods.
func (o *owners) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	name, _, _ := strings.Cut(host, ".")
	text := ""
	if pod := o.pods[name]; pod != nil {
		text = pod.Status.PodIP
	} else {
		service := &corev1.Service{}
		if err := o.Get(ctx, client.ObjectKey{Namespace: o.m.Namespace, Name: name}, service); err != nil {
			return nil, err
		}
		text = service.Spec.ClusterIP
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("%s has no address now, and clients hash it", name)
	}
	return []netip.Addr{address}, nil
}

func newOwner(c *command) *cobra.Command {
	format, stdin := "", false
	cmd := &cobra.Command{
		Use: "owner NAME KEY...", Short: "Show the member where clients look for a key",
		Example: "  kubectl mc owner cache user:17 user:18\n  kubectl mc owner cache --stdin <keys.txt",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.owner(cmd.Context(), args[0], args[1:], stdin, format)
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "read further keys from standard input, one a line")
	addOutput(cmd, &format)
	return cmd
}

func (c *command) owner(ctx context.Context, name string, keys []string, stdin bool, format string) error {
	if err := checkOutput(format); err != nil {
		return err
	}
	if stdin {
		lines := bufio.NewScanner(c.io.In)
		for lines.Scan() {
			if key := lines.Text(); key != "" {
				keys = append(keys, key)
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("read keys: %w", err)
		}
	}
	if len(keys) == 0 {
		return errors.New("name at least one key, or give --stdin")
	}
	for _, key := range keys {
		if err := members.CheckKey(key); err != nil {
			return err
		}
	}
	o, err := c.owners(ctx, name)
	if err != nil {
		return err
	}
	all := make([]owned, len(keys))
	for i, key := range keys {
		all[i] = o.find(key)
	}
	return c.print(format, all, func() []string {
		rows := [][]string{{"KEY", "MEMBER", "SERVER", "NODE", "ADDRESS"}}
		for _, at := range all {
			rows = append(rows, []string{at.Key, at.Member, at.Server, at.Node, at.Address})
		}
		return screen.Table(rows)
	})
}

// atOwner connects to the member where clients look for the key, and does something with it there.
func (c *command) atOwner(ctx context.Context, name, key string, do func(*members.Members, *owners, owned) error) error {
	if err := members.CheckKey(key); err != nil {
		return err
	}
	o, err := c.owners(ctx, name)
	if err != nil {
		return err
	}
	at := o.find(key)
	if at.pod == nil {
		return fmt.Errorf("member %s, where clients look for the key, has no pod", at.Member)
	}
	m, err := members.Of(ctx, o, members.Forwarded(o.Config, o.Clients), o.m)
	if err != nil {
		return err
	}
	return do(m, o, at)
}

// missing is for a key that its member doesn't have.
func missing(at owned) error {
	return &exit{exitFailed, fmt.Sprintf("member %s has no item with this key", at.Member)}
}

func newGet(c *command) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use: "get NAME KEY", Short: "Print the value of a key, from the member where clients look for it",
		Example: "  kubectl mc get cache user:17", Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := checkOutput(format); err != nil {
				return err
			}
			return c.atOwner(ctx, args[0], args[1], func(m *members.Members, o *owners, at owned) error {
				item, err := m.Get(ctx, o.m, at.pod, at.Key)
				switch {
				case err != nil:
					return err
				case item == nil:
					return missing(at)
				case format != "":
					return c.print(format, item, nil)
				}
				value := item.Value
				if _, _, is := terminal(c.io.Out); is {
					value = harmless(value)
				}
				_, err = c.io.Out.Write(value)
				return err
			})
		},
	}
	addOutput(cmd, &format)
	return cmd
}

// harmless returns a value for a terminal: stored values must not steer the terminal of the person who looks
// at them.
func harmless(value []byte) []byte {
	lines := strings.SplitAfter(string(value), "\n")
	for i, line := range lines {
		text, ended := strings.CutSuffix(line, "\n")
		if lines[i] = screen.Plain(text); ended {
			lines[i] += "\n"
		}
	}
	return []byte(strings.Join(lines, ""))
}

func newTouch(c *command) *cobra.Command {
	return &cobra.Command{
		Use: "touch NAME KEY SECONDS", Short: "Set when a key expires, at the member where clients look for it; 0 for never",
		Example: "  kubectl mc touch cache user:17 3600", Args: cobra.ExactArgs(3), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			const month = 30 * 24 * 3600 // memcached takes more for a date
			seconds, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || seconds < 0 || seconds > month {
				return fmt.Errorf("%q is not 0 to %d seconds", args[2], month)
			}
			return c.atOwner(ctx, args[0], args[1], func(m *members.Members, o *owners, at owned) error {
				return c.changed(at)(m.Touch(ctx, o.m, at.pod, at.Key, seconds))
			})
		},
	}
}

func newDelete(c *command) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "delete NAME KEY", Short: "Delete a key at the member where clients look for it; asks first",
		Example: "  kubectl mc delete cache user:17", Args: cobra.ExactArgs(2), ValidArgsFunction: c.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return c.atOwner(ctx, args[0], args[1], func(m *members.Members, o *owners, at owned) error {
				if err := c.agree(ctx, yes, fmt.Sprintf("This deletes the item at member %s. Go on?", at.Member)); err != nil {
					return err
				}
				return c.changed(at)(m.Delete(ctx, o.m, at.pod, at.Key))
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "answer the question with yes")
	return cmd
}

// changed reports the result of a change of an item.
func (c *command) changed(at owned) func(bool, error) error {
	return func(there bool, err error) error {
		if err == nil && !there {
			return missing(at)
		}
		if err == nil {
			fmt.Fprintln(c.io.Out, "done at member", at.Member)
		}
		return err
	}
}
