package fence

import (
	"fmt"

	"example.com/memcached-operator/drainer/ringchange"
)

// Epoch counts the requests that began with a table.
type Epoch struct {
	// Number and State are the table's.
	Number     int64
	State      ringchange.State
	unanswered int
}

// Leave is called when a request is answered.
func (e *Epoch) Leave() { e.unanswered-- }

// Epochs are the epochs that have unanswered requests, and the epoch of the present table.
type Epochs struct {
	now *Epoch
	all []*Epoch
}

// Begin begins the epoch of a table.
func (e *Epochs) Begin(t *Table) {
	e.now = &Epoch{Number: t.Number, State: t.State}
	e.all = append(e.all, e.now)
}

// Enter counts a new request in the present table's epoch.
func (e *Epochs) Enter() *Epoch {
	e.now.unanswered++
	return e.now
}

// Acknowledged returns the number of the latest table before whose epoch all requests are answered. If there
// are unanswered requests of earlier tables, why says so.
func (e *Epochs) Acknowledged() (number int64, why string) {
	kept := e.all[:0]
	number = e.now.Number
	for _, epoch := range e.all {
		if epoch.unanswered > 0 && epoch != e.now {
			if number == e.now.Number {
				number = epoch.Number
			}
			why = fmt.Sprintf("%d requests that began with table %d are not answered", epoch.unanswered, epoch.Number)
		}
		if epoch.unanswered > 0 || epoch == e.now {
			kept = append(kept, epoch)
		}
	}
	e.all = kept
	return number, why
}
