package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"example.com/memcached-operator/test/cluster/internal/process"
)

const etcdURL = "https://127.0.0.1"

func serverURL() string { return fmt.Sprintf("https://%s:%d", bridge.Address.Addr(), portAPIServer) }

func start(name string, args ...string) (*process.Process, error) {
	return programs.Start(process.Spec{Name: name, Args: append([]string{program(name)}, args...), Env: environment()})
}

func startEtcd() (*process.Process, error) {
	client, peer := fmt.Sprintf("%s:%d", etcdURL, portEtcd), fmt.Sprintf("%s:%d", etcdURL, portEtcdPeer)
	return start("etcd",
		"--name=etcd",
		"--data-dir="+filepath.Join(stateDir, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=etcd="+peer,
		"--cert-file="+cert("etcd"), "--key-file="+key("etcd"),
		"--trusted-ca-file="+cert("etcd-ca"), "--client-cert-auth",
		"--peer-cert-file="+cert("etcd"), "--peer-key-file="+key("etcd"),
		"--peer-trusted-ca-file="+cert("etcd-ca"), "--peer-client-cert-auth",
		// Its data need not survive a crash of the machine.
		"--unsafe-no-fsync",
		// A commit's cost doesn't depend on its size.
		"--backend-batch-interval=1s", "--backend-batch-limit=100000",
		"--log-level=warn",
	)
}

// auditPolicy logs the operator's writes only: benchmarks count them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["system:serviceaccount:memcached-operator-system:memcached-operator-controller-manager"]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

func startAPIServer() (*process.Process, error) {
	policy := filepath.Join(configDir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return nil, err
	}
	return start("kube-apiserver",
		"--advertise-address="+bridge.Address.Addr().String(),
		"--bind-address="+bridge.Address.Addr().String(),
		fmt.Sprintf("--secure-port=%d", portAPIServer),
		"--tls-cert-file="+cert("kube-apiserver"), "--tls-private-key-file="+key("kube-apiserver"),
		"--client-ca-file="+cert("ca"),
		fmt.Sprintf("--etcd-servers=%s:%d", etcdURL, portEtcd),
		"--etcd-cafile="+cert("etcd-ca"), "--etcd-certfile="+cert("etcd-client"), "--etcd-keyfile="+key("etcd-client"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--audit-policy-file="+policy,
		"--audit-log-path="+filepath.Join(programs.Logs, "audit.log"), "--audit-log-maxsize=100", "--audit-log-maxbackup=1",
		"--allow-privileged=true",
		"--service-cluster-ip-range="+services.String(),
		"--service-account-issuer=https://kubernetes.default.svc."+clusterDomain,
		"--service-account-key-file="+cert("service-accounts"),
		"--service-account-signing-key-file="+key("service-accounts"),
		"--kubelet-client-certificate="+cert("kubelet-client"), "--kubelet-client-key="+key("kubelet-client"),
		"--kubelet-certificate-authority="+cert("ca"),
		// A node's name can't be resolved.
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+cert("front-proxy-ca"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+cert("front-proxy-client"), "--proxy-client-key-file="+key("front-proxy-client"),
		"--profiling=false",
	)
}

func startControllerManager() (*process.Process, error) {
	return start("kube-controller-manager", append(client("kube-controller-manager"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", portControllerManager),
		"--use-service-account-credentials",
		"--service-account-private-key-file="+key("service-accounts"),
		"--root-ca-file="+cert("ca"),
		"--cluster-signing-cert-file="+cert("ca"), "--cluster-signing-key-file="+key("ca"),
		// Tests wait for the autoscaler.
		"--horizontal-pod-autoscaler-sync-period=2s",
		"--flex-volume-plugin-dir="+filepath.Join(stateDir, "volume-plugins"),
		"--profiling=false",
	)...)
}

func startScheduler() (*process.Process, error) {
	return start("kube-scheduler", append(client("kube-scheduler"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", portScheduler),
		"--profiling=false",
	)...)
}

// client returns the flags by which a component finds the API server, and asks it to authenticate the
// component's own clients.
func client(who string) []string {
	return []string{
		"--kubeconfig=" + userConfig(who),
		"--authentication-kubeconfig=" + userConfig(who),
		"--authorization-kubeconfig=" + userConfig(who),
	}
}
