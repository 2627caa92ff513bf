package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/memcached-operator/test/cluster/internal/host"
	"example.com/memcached-operator/test/cluster/internal/process"
)

// journal has the machine's former settings, to restore them. The journal is on disk before the first change
// is made.
type journal struct {
	// Boot is the id of the machine's boot. After another boot, the kernel's settings are the former ones.
	Boot         string
	Settings     []host.Setting
	UnusedTables []string
	// Directories are those that were made outside the cluster's own.
	Directories []string
	// Controllers are those of version 2 control groups that were handed to groups below the root.
	Controllers []string
}

const journalFile = stateDir + "/machine.json"

const forwarding = "net/ipv4/ip_forward"

// kernelSettings are those that the cluster changes: one to forward the pods' packets, and those that the
// kubelet sets when it starts.
var kernelSettings = map[string]string{
	forwarding:                  "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func (j journal) write() error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(journalFile, text, 0o644)
}

// readJournal returns the journal, without kernel settings from before a reboot. The journal is empty if
// there is no file.
func readJournal() journal {
	var j journal
	if text, err := os.ReadFile(journalFile); err == nil {
		_ = json.Unmarshal(text, &j)
	}
	if j.Boot != process.BootID() {
		return journal{Directories: j.Directories}
	}
	return j
}

// missing returns the directories that have to be made for the path to
// exist, the innermost first.
func missing(path string) []string {
	var list []string
	for ; path != "/"; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		list = append(list, path)
	}
	return list
}
