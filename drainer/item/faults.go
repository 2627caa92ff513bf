package item

import (
	"fmt"
	"os"
	"runtime/debug"
)

// Faults turns faults of mapped memory into an error: the disk has failed, or somebody has cut
// the file. The returned function is to be deferred, in the goroutine that reads.
func Faults(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		switch p := recover().(type) {
		case nil:
		case *os.PathError:
			*err = p
		case interface{ Addr() uintptr }: // a runtime.Error
			*err = fmt.Errorf("the mapped file can't be read: %v", p)
		default:
			panic(p)
		}
	}
}
