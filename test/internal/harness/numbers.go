package harness

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// Numbers adds a flag to this program: a list of positive numbers, with commas between them.
func Numbers[T int | float64](name, usage string, values ...T) *[]T {
	list := numbers[T](values)
	flag.Var(&list, name, usage)
	return (*[]T)(&list)
}

type numbers[T int | float64] []T

// String is the list with commas.
func (l *numbers[T]) String() string {
	var words []string
	for _, n := range *l {
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ",")
}

// Set takes the list of the command line.
func (l *numbers[T]) Set(text string) error {
	var list []T
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil || n <= 0 || float64(T(n)) != n {
			return fmt.Errorf("want positive numbers such as %v, not %q", l, word)
		}
		list = append(list, T(n))
	}
	*l = list
	return nil
}
