package item

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// ErrFault means that a mapped file can't be read: its disk has failed, or another process has truncated it.
var ErrFault = errors.New("the mapped file can't be read")

// Faults turns faults of mapped memory into an ErrFault. The returned function has to be deferred in the
// goroutine that reads.
func Faults(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		switch p := recover().(type) {
		case nil:
		case *os.PathError:
			*err = p
		case interface{ Addr() uintptr }: // a runtime.Error
			*err = fmt.Errorf("%w: %v", ErrFault, p)
		default:
			panic(p)
		}
	}
}
