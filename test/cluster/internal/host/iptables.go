package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Firewall is the cluster's iptables rules on the machine itself. Each rule has the comment, and only rules
// with the comment are ever removed. (The rules of kube-proxy, the kubelet and the pods are in a node's own
// network namespace, and go with it.)
type Firewall struct {
	Comment string
	// Device and Network are the bridge, and all addresses behind it.
	Device, Network string
}

// tables are those that get rules.
var tables = []string{"filter", "nat"}

// rules let the pods' packets out and answers in, and let pods reach the API server on the machine, even if the
// machine's policy is DROP.
func (f Firewall) rules() [][]string {
	comment := []string{"-m", "comment", "--comment", f.Comment}
	rule := func(table, chain string, match ...string) []string {
		return append(append([]string{"-w", "-t", table, "-I", chain}, match...), comment...)
	}
	jump := func(rule []string, target string) []string { return append(rule, "-j", target) }
	return [][]string{
		jump(rule("filter", "INPUT", "-i", f.Device), "ACCEPT"),
		jump(rule("filter", "FORWARD", "-i", f.Device), "ACCEPT"),
		jump(rule("filter", "FORWARD", "-o", f.Device, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"), "ACCEPT"),
		jump(rule("nat", "POSTROUTING", "-s", f.Network, "!", "-o", f.Device), "MASQUERADE"),
	}
}

// Install adds the rules.
func (f Firewall) Install(ctx context.Context) error {
	for _, rule := range f.rules() {
		if _, err := Run(ctx, "iptables", rule...); err != nil {
			return err
		}
	}
	return nil
}

// UnusedTables returns the nftables tables that don't exist, and that iptables would make for the rules. Remove
// takes the list.
func (f Firewall) UnusedTables(ctx context.Context) []string {
	var unused []string
	if !usesNftables(ctx) {
		return nil
	}
	for _, table := range tables {
		if _, err := Run(ctx, "nft", "list", "table", "ip", table); err != nil {
			unused = append(unused, table)
		}
	}
	return unused
}

// Remove deletes the rules that have the comment, and those of the named tables that are empty then.
func (f Firewall) Remove(ctx context.Context, unused []string) error {
	if _, err := exec.LookPath("iptables"); err != nil {
		return nil // iptables was never installed, so there are no rules
	}
	var failed []error
	for _, table := range tables {
		// In legacy mode, a look into a table that isn't there would make it.
		if !mayHold(ctx, table) {
			continue
		}
		rules, err := Run(ctx, "iptables", "-w", "-t", table, "-S")
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, deletion := range deletions(rules, f.Comment) {
			if _, err := Run(ctx, "iptables", append([]string{"-w", "-t", table}, deletion...)...); err != nil {
				failed = append(failed, err)
			}
		}
	}
	for _, table := range unused {
		rules, err := Run(ctx, "nft", "list", "table", "ip", table)
		if err == nil && onlyEmptyBaseChains(rules) {
			_, err = Run(ctx, "nft", "delete", "table", "ip", table)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// ForwardsForOthers tells whether iptables has rules for forwarded packets. When the cluster's own rules are
// gone, these are another program's.
func ForwardsForOthers(ctx context.Context) bool {
	if !mayHold(ctx, "filter") {
		return false
	}
	rules, err := Run(ctx, "iptables", "-w", "-t", "filter", "-S", "FORWARD")
	return err == nil && strings.Contains("\n"+rules, "\n-A ")
}

func mayHold(ctx context.Context, table string) bool {
	if usesNftables(ctx) {
		return true
	}
	names, err := os.ReadFile("/proc/net/ip_tables_names")
	return err == nil && strings.Contains("\n"+string(names), "\n"+table+"\n")
}

func usesNftables(ctx context.Context) bool {
	version, err := Run(ctx, "iptables", "--version")
	return err == nil && strings.Contains(version, "nf_tables")
}

// deletions turns the rules of `iptables -S` that have the comment into arguments that delete them.
func deletions(rules, comment string) [][]string {
	var result [][]string
	for line := range strings.Lines(rules) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "-A" {
			continue
		}
		for i := range len(fields) - 1 {
			if fields[i] == "--comment" && (fields[i+1] == comment || fields[i+1] == `"`+comment+`"`) {
				fields[0] = "-D"
				fields[i+1] = comment
				result = append(result, fields)
				break
			}
		}
	}
	return result
}

// onlyEmptyBaseChains tells whether nft's listing of a table has no rule, and no chain but those that iptables
// makes itself.
func onlyEmptyBaseChains(listing string) bool {
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		name, isChain := strings.CutPrefix(line, "chain ")
		switch {
		case line == "" || line == "}" || strings.HasPrefix(line, "table ") || strings.HasPrefix(line, "#"):
		case isChain && strings.ToUpper(name) == name: // user chains are found by their missing hook line
		case strings.HasPrefix(line, "type ") && strings.HasSuffix(line, "policy accept;"):
		default:
			return false
		}
	}
	return strings.Count(listing, "chain ") == strings.Count(listing, "type ")
}

// CheckIptables tries the rules that kube-proxy needs, in the network namespace of the process, where they
// affect no other.
func CheckIptables(ctx context.Context, pid int) error {
	_, err := Run(ctx, "nsenter", "--target", fmt.Sprint(pid), "--net", "--", "sh", "-ec", `
		iptables -w -t nat -N MCO-CHECK
		iptables -w -t nat -A MCO-CHECK -m comment --comment check -m statistic --mode random --probability 0.5 -j MASQUERADE
		iptables -w -t nat -F MCO-CHECK
		iptables -w -t nat -X MCO-CHECK`)
	if err != nil {
		return fmt.Errorf("this kernel can't do what kube-proxy needs: %w", err)
	}
	return nil
}
