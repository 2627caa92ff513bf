package pki

import (
	"encoding/base64"
	"fmt"
	"os"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[4]s
  user:
    client-certificate-data: %[5]s
    client-key-data: %[6]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[4]s
current-context: %[1]s
`

// WriteKubeconfig writes a kubeconfig that carries its certificates, so that
// it can be copied elsewhere; only the owner can read it.
func WriteKubeconfig(path, cluster, server, user string, authority []byte, client Pair) error {
	b64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(kubeconfig, cluster, server, b64(authority), user, b64(client.Cert), b64(client.Key))
	return os.WriteFile(path, []byte(text), 0o600)
}
