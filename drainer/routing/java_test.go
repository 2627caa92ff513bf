package routing

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"

	"example.com/memcached-operator/test/tier"
)

const spymemcachedJar = "/usr/share/java/spymemcached.jar"

// javaClasses is the directory of Peer.java's classes.
var javaClasses string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if javaClasses, err = os.MkdirTemp("", "routing-java-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(javaClasses)
		return m.Run()
	}())
}

// compileJava compiles Peer.java, once for all clients in it.
var compileJava = sync.OnceValues(func() (output []byte, err error) {
	return exec.Command("javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "-cp", spymemcachedJar, "-d", javaClasses, "testdata/Peer.java").CombinedOutput()
})

func askJava(t *testing.T, client string, questions []question, keys [][]byte) [][]int {
	t.Helper()
	_, err := os.Stat(spymemcachedJar)
	_, noCompiler := exec.LookPath("javac")
	tier.Needs(t, "Java with spymemcached", errors.Join(err, noCompiler))
	if out, err := compileJava(); err != nil {
		t.Fatalf("compile Peer.java (Debian's packages default-jdk-headless and libspymemcached-java are needed): %v\n%s", err, out)
	}
	java := library{command: []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", javaClasses + ":" + spymemcachedJar, "Peer"}}
	return java.ask(t, client, questions, keys)
}
