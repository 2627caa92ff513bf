package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// overlapping finds a device that has an address in the network.
func overlapping(network netip.Prefix, ignore string) (device string, address netip.Prefix, found bool) {
	interfaces, _ := net.Interfaces()
	for _, device := range interfaces {
		if device.Name == ignore {
			continue
		}
		addresses, _ := device.Addrs()
		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Masked().Overlaps(network) {
				return device.Name, prefix, true
			}
		}
	}
	return "", netip.Prefix{}, false
}

// CheckSubnet returns an error if a device other than ours has an address in the network.
func CheckSubnet(network netip.Prefix, ours string) error {
	if device, address, found := overlapping(network, ours); found {
		return fmt.Errorf("the network %s is taken: device %s has the address %s", network, device, address)
	}
	return nil
}

// CheckPort returns an error if a process listens on the TCP address.
func CheckPort(address string, purpose string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("port %s, for %s, is taken (%w); `ss -lptn` shows by what", address, purpose, err)
	}
	return listener.Close()
}

// Bridge is a network bridge in the machine's own network.
type Bridge struct {
	Name    string
	Address netip.Prefix
	// Alias marks the bridge as ours: without it a device is not removed.
	Alias string
}

type link struct {
	Name  string `json:"ifname"`
	Alias string `json:"ifalias"`
}

// links returns the machine's devices that have the alias.
func links(ctx context.Context, alias string) ([]link, error) {
	text, err := Run(ctx, "ip", "-json", "link", "show")
	if err != nil {
		return nil, err
	}
	var all, ours []link
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("ip -json link show: %w", err)
	}
	for _, one := range all {
		if one.Alias == alias {
			ours = append(ours, one)
		}
	}
	return ours, nil
}

// Create makes the bridge.
func (b Bridge) Create(ctx context.Context) error {
	return runAll(ctx,
		[]string{"ip", "link", "add", b.Name, "type", "bridge"},
		[]string{"ip", "link", "set", b.Name, "alias", b.Alias},
		[]string{"ip", "address", "add", b.Address.String(), "dev", b.Name},
		[]string{"ip", "link", "set", b.Name, "up"})
}

// Uplink connects a network namespace, that of process pid, to the bridge.
type Uplink struct {
	Device  string // on the machine's side; inside it is eth0
	PID     int
	Address netip.Prefix
}

// Route routes packets for the network to the gateway, inside the namespace.
func (up Uplink) Route(ctx context.Context, network netip.Prefix, gateway netip.Addr) error {
	_, err := Run(ctx, "nsenter", "--target", strconv.Itoa(up.PID), "--net", "--",
		"ip", "route", "replace", network.String(), "via", gateway.String(), "dev", "eth0")
	return err
}

// Connect makes a pair of devices, one end on the bridge and the other, eth0,
// in the namespace, and routes the networks there.
func (b Bridge) Connect(ctx context.Context, up Uplink, networks ...netip.Prefix) error {
	inside := func(args ...string) []string {
		return append([]string{"nsenter", "--target", strconv.Itoa(up.PID), "--net", "--"}, args...)
	}
	commands := [][]string{
		{"ip", "link", "add", up.Device, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(up.PID)},
		{"ip", "link", "set", up.Device, "alias", b.Alias, "master", b.Name, "up"},
		inside("ip", "link", "set", "lo", "up"),
		inside("ip", "address", "add", up.Address.String(), "dev", "eth0"),
		inside("ip", "link", "set", "eth0", "up"),
		inside("ip", "route", "add", "default", "via", b.Address.Addr().String()),
		inside("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
		// Otherwise the kernel would tell only one client a second on the whole host that a Service has no
		// endpoint, and the others would hang.
		inside("sh", "-c", "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit"),
	}
	for _, network := range networks {
		commands = append(commands,
			[]string{"ip", "route", "replace", network.String(), "via", up.Address.Addr().String(), "dev", b.Name})
	}
	return runAll(ctx, commands...)
}

// RemoveLinks removes every device that has the alias, and routes with them.
func RemoveLinks(ctx context.Context, alias string) error {
	ours, err := links(ctx, alias)
	if err != nil {
		return err
	}
	var failed []error
	for _, device := range ours {
		// One end of a pair may be gone with the other.
		if _, err := Run(ctx, "ip", "link", "delete", device.Name); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func runAll(ctx context.Context, commands ...[]string) error {
	for _, command := range commands {
		if _, err := Run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}
