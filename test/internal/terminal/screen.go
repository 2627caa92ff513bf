package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// cell is a character of the screen, with the code of its colour or weight; 0 for none.
type cell struct {
	char rune
	code int
}

// screen has the contents of a terminal of a size. A screen understands the output of kubectl mc, kubectl and
// a shell: characters, line ends, the cursor's home, clearing, and colours.
type screen struct {
	columns, rows int
	cells         [][]cell
	row, column   int
	code          int
	rest          []byte // of a character or a sequence that has not come whole
}

func newScreen(columns, rows int) *screen {
	s := &screen{columns: columns, rows: rows}
	for range rows {
		s.cells = append(s.cells, make([]cell, columns))
	}
	return s
}

// write shows the bytes. cleared is called each time when a program has cleared everything below its output:
// then its screen is complete.
func (s *screen) write(text []byte, cleared func()) {
	text = append(s.rest, text...)
	for len(text) > 0 {
		n := s.next(text, cleared)
		if n == 0 {
			break
		}
		text = text[n:]
	}
	s.rest = append([]byte(nil), text...)
}

// next shows a character or obeys a sequence, and returns its length: 0 if it has not come whole.
func (s *screen) next(text []byte, cleared func()) int {
	const escape = 0x1b
	switch text[0] {
	case escape:
		return s.sequence(text, cleared)
	case '\r':
		s.column = 0
	case '\n':
		s.feed()
	case '\b':
		s.column = max(0, s.column-1)
	case '\a':
	default:
		if !utf8.FullRune(text) {
			return 0
		}
		char, n := utf8.DecodeRune(text)
		s.put(char)
		return n
	}
	return 1
}

func (s *screen) put(char rune) {
	if s.column == s.columns {
		s.column = 0
		s.feed()
	}
	s.cells[s.row][s.column] = cell{char, s.code}
	s.column++
}

// feed goes to the next row, and scrolls if there is none.
func (s *screen) feed() {
	if s.row++; s.row < s.rows {
		return
	}
	s.row = s.rows - 1
	s.cells = append(s.cells[1:], make([]cell, s.columns))
}

// sequence obeys ESC [ numbers letter.
func (s *screen) sequence(text []byte, cleared func()) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != '[' {
		return 2
	}
	end := 2
	for end < len(text) && (text[end] < '@' || text[end] > '~') {
		end++
	}
	if end == len(text) {
		return 0
	}
	numbers := string(text[2:end])
	switch text[end] {
	case 'H':
		s.row, s.column = 0, 0
	case 'K':
		clear(s.cells[s.row][min(s.column, s.columns):])
	case 'J':
		if numbers == "2" {
			s.row, s.column = 0, 0
		}
		clear(s.cells[s.row][min(s.column, s.columns):])
		for _, row := range s.cells[s.row+1:] {
			clear(row)
		}
		cleared()
	case 'm':
		for number := range strings.SplitSeq(numbers, ";") {
			s.code, _ = strconv.Atoi(number) // none is 0
		}
	}
	return end + 1
}

// Frame is a screen at a time.
type Frame [][]cell

// frame is the present screen.
func (s *screen) frame() Frame {
	f := make(Frame, s.rows)
	for i := range f {
		f[i] = append([]cell(nil), s.cells[i]...)
	}
	return f
}

// Text is the frame's text, without blanks at the ends of lines and lines at the end.
func (f Frame) Text() string {
	lines := make([]string, len(f))
	for i, row := range f {
		chars := make([]rune, len(row))
		for j, c := range row {
			if chars[j] = c.char; c.char == 0 {
				chars[j] = ' '
			}
		}
		lines[i] = strings.TrimRight(string(chars), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
