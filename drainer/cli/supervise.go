package cli

import (
	"context"
	"os"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/member"
)

// runServe runs the supervisor, which is memcached's parent and usually process 1 of the container.
func runServe(ctx context.Context, line []string, std commandline.IO) (int, error) {
	fs := commandline.NewFlags("supervise")
	var c member.Config
	fs.StringVar(&c.Volume, contract.FlagDir, "", "the member's volume; may be left out if there are Secrets to watch or metrics to serve, and nothing is to be saved")
	fs.StringVar(&c.Memory, contract.FlagMemoryDir, "", "a directory in memory for the warm file, which is then saved to the volume on SIGTERM and loaded from it at the start")
	fs.IntVar(&c.Port, contract.FlagPort, 11211, "the port that memcached listens on")
	fs.IntVar(&c.ExportPort, contract.FlagExportPort, 0, "the port at which items are streamed to those who move them, with TLS and logins as memcached's; 0 none")
	fs.IntVar(&c.ProbePort, contract.FlagProbePort, 0, "the port that answers the kubelet's HTTP probe, whether memcached answers; 0 none")
	fs.IntVar(&c.MetricsPort, contract.FlagMetricsPort, 0, "the port that serves memcached's metrics to Prometheus, by plain HTTP and without a login; 0 none")
	fs.StringVar(&c.TerminationLog, contract.FlagTerminationLog, "", "write here, ahead of a crash, whether the start after it would be cold")
	fs.DurationVar(&c.HangAfter, contract.FlagHangAfter, member.HangAfter, "kill a memcached that has neither answered nor used the CPU for so long")
	fs.DurationVar(&c.GracePeriod, contract.FlagGracePeriod, member.GracePeriod, "the pod's: memcached is killed if it has not ended after a third of it, and the most recently used items are saved first if the rest is too short for all")
	fs.StringVar(&c.ListFile, contract.FlagList, "", "the file with the list that clients are told")
	fs.StringVar(&c.Discovery, contract.FlagDiscovery, "", "tell clients of --list at this address, HOST:PORT, by ElastiCache's discovery protocol, and in an item of memcached; empty for neither")
	fs.StringVar(&c.StepFile, contract.FlagStep, "", "the file that tells a member that is out of the ring to start empty; empty for none")
	addConnection(fs, &c.Dialer.Connection)
	defer serveProfiles(os.Getenv(profileVariable), std.Err)()
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return 0, err
	}
	c.Dialer.Unverified = true
	c.Command = fs.Args()
	return member.Serve(ctx, c, std)
}

// runReady fails unless the member on the port is warm.
func runReady(ctx context.Context, line []string, std commandline.IO) error {
	fs := commandline.NewFlags("ready")
	port := fs.Int(contract.FlagPort, 11211, "the port that memcached listens on")
	if err := commandline.ParseFlags(fs, line, std); err != nil {
		return err
	}
	if err := commandline.NoArguments(fs); err != nil {
		return err
	}
	return member.Ready(ctx, *port)
}
