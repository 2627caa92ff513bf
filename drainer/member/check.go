package member

import (
	"crypto/x509"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
)

// check refuses arguments that can't work, and finds memcached.
func (s *supervisor) check() error {
	if s.Dir() != "" || s.Dialer.Connection == (contract.Connection{}) && s.MetricsPort == 0 {
		if err := commandline.Directory(contract.FlagDir, s.Volume); err != nil {
			return err
		}
		if err := commandline.Directory(contract.FlagMemoryDir, s.Dir()); err != nil {
			return err
		}
	}
	if s.HangAfter < time.Second {
		return commandline.Usagef("--%s: at least 1s is needed", contract.FlagHangAfter)
	}
	if s.GracePeriod < time.Second {
		return commandline.Usagef("--%s: at least 1s is needed", contract.FlagGracePeriod)
	}
	if s.Port < 1 || s.Port > 65535 {
		return commandline.Usagef("--%s: %d is not a port", contract.FlagPort, s.Port)
	}
	if err := s.checkDiscovery(); err != nil {
		return err
	}
	if err := s.checkExport(); err != nil {
		return err
	}
	if err := s.checkHTTP(); err != nil {
		return err
	}
	if len(s.Command) == 0 {
		return commandline.Usagef("drainer supervise needs memcached's command line after --")
	}
	if err := s.checkOptions(); err != nil {
		return err
	}
	path, err := exec.LookPath(s.Command[0])
	if err != nil {
		return commandline.Usagef("drainer supervise: %v", err)
	}
	s.Command = append([]string{path}, s.Command[1:]...)
	for _, dir := range []*string{&s.Memory, &s.Volume} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return nil
}

// checkOptions refuses options of memcached that can't work.
func (s *supervisor) checkOptions() error {
	options := commandline.Parse(s.Command[1:])
	if slices.ContainsFunc(options, commandline.Option.IsSupervisors) {
		return commandline.Usagef("drainer supervise: memcached's -e (--memory-file) and -d (--daemon) are not for the user to set: the supervisor chooses the warm file and stays the parent")
	}
	if commandline.NeverStarts(s.Command[1:]) {
		return commandline.Usagef("drainer supervise: memcached never starts with a value among %q: see extraArgs", s.Command[1:])
	}
	if s.Dir() == "" {
		return nil
	}
	if err := unfit(options.ShortPages(), options.External()); err != nil {
		return commandline.Usagef("drainer supervise: %v", err)
	}
	return nil
}

// unfitError says why memcached would never restart from its own file.
type unfitError string

func (e unfitError) Error() string { return string(e) }

// unfit returns an unfitError, or nil. shortPages means that slab pages have individual lengths, external that
// values are in extstore.
func unfit(shortPages, external bool) error {
	switch {
	case shortPages:
		return unfitError("memcached never restarts from the file of one that moves no slab pages and has slots of a whole page: " +
			"leave out no_modern, no_slab_reassign or no_chunked_items of -o, or set slab_chunk_max to less than 1 MiB")
	case external:
		return unfitError("memcached never restarts from its file with extstore: leave out ext_path of -o")
	}
	return nil
}

func (s *supervisor) checkExport() error {
	if s.ExportPort < 0 || s.ExportPort > 65535 || s.ExportPort == s.Port {
		return commandline.Usagef("--%s: %d is not a port, or memcached's", contract.FlagExportPort, s.ExportPort)
	}
	if _, port, err := net.SplitHostPort(s.Discovery); err == nil && s.ExportPort != 0 && port == strconv.Itoa(s.ExportPort) {
		return commandline.Usagef("--%s: %d is the port of --%s", contract.FlagExportPort, s.ExportPort, contract.FlagDiscovery)
	}
	return nil
}

// checkHTTP checks the ports of the probe and of the metrics.
func (s *supervisor) checkHTTP() error {
	taken := []int{s.Port, s.ExportPort}
	if _, port, err := net.SplitHostPort(s.Discovery); err == nil {
		n, _ := strconv.Atoi(port) // it may be a name
		taken = append(taken, n)
	}
	for _, p := range []struct {
		flag string
		port int
	}{{contract.FlagProbePort, s.ProbePort}, {contract.FlagMetricsPort, s.MetricsPort}} {
		if p.port < 0 || p.port > 65535 || p.port != 0 && slices.Contains(taken, p.port) {
			return commandline.Usagef("--%s: %d is not a port, or it is used already", p.flag, p.port)
		}
		taken = append(taken, p.port)
	}
	return nil
}

func (s *supervisor) checkDiscovery() error {
	if s.Discovery == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(s.Discovery); err != nil || port == strconv.Itoa(s.Port) {
		return commandline.Usagef("--%s: %s is not HOST:PORT with a port that memcached doesn't have", contract.FlagDiscovery, s.Discovery)
	}
	if s.ListFile == "" || s.Dir() == "" {
		return commandline.Usagef("--%s needs --%s and --%s", contract.FlagDiscovery, contract.FlagList, contract.FlagDir)
	}
	return nil
}

// checkSecrets refuses a start that memcached would refuse, or after which memcached would accept no client.
// memcached reads the volume's .meta only once, so a failing start would use it up. The termination message
// says why.
func (s *supervisor) checkSecrets() error {
	err := s.Dialer.CheckFiles(s.usages()...)
	if err == nil {
		return nil
	}
	return errors.Join(err, s.termination.refuse(contract.ReasonSecretInvalid, err))
}

// usages returns the required usages of the member's certificate. The supervisor uses it as a client's
// certificate, too, if memcached asks its clients for one.
func (s *supervisor) usages() []x509.ExtKeyUsage {
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if s.verifiesClients() {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

// verifiesClients tells whether memcached asks its clients for a certificate.
func (s *supervisor) verifiesClients() bool {
	return slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, contract.VerifyClients) })
}
