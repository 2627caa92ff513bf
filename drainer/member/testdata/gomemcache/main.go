// Command gomemcache is a peer of TestARealClientFollows: Google's gomemcache, whose
// discovery client asks every second. It has no tag, and another module's name, so it is
// built against a clone of https://github.com/google/gomemcache:
//
//	go mod edit -replace github.com/bradfitz/gomemcache=CLONE && go build -o PEER .
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	client, err := memcache.NewDiscoveryClient(os.Args[1], time.Second)
	if err != nil {
		log.Fatal(err)
	}
	keys := bufio.NewScanner(os.Stdin)
	for keys.Scan() {
		if err := client.Set(&memcache.Item{Key: keys.Text(), Value: []byte("1")}); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("stored")
	}
}
