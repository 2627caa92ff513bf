package bundle

import (
	"encoding/json"
	"io/fs"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/docs"
)

// hidden stands for each part that is left out.
const hidden = "…"

// Known has the words that may stay: the names of the objects in the archive, and the documentation's words.
type Known map[string]bool

var (
	letters = regexp.MustCompile(`(cache\.example\.com/)?[A-Za-z][A-Za-z'’-]*`)
	// number has a unit, or none. A number of four digits may be a PIN; what is counted is in fields of its
	// own.
	number = regexp.MustCompile(`^-?[0-9]{1,3}(\.[0-9]{1,3})?(%|[kKMGT]i?B?|B)?$`)
	// quoted is a string in quotes, as Go prints it.
	quoted = regexp.MustCompile(`"(?:\\.|[^"\\])*"?`)
	// reason is the form of the words by which Kubernetes' conditions and events name a cause.
	reason = regexp.MustCompile(`^[A-Z][A-Za-z]{0,62}$`)
)

// documented has the words of the documentation, in small letters.
var documented = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	_ = fs.WalkDir(docs.Pages, ".", func(path string, entry fs.DirEntry, err error) error { // what can't be read is not known
		if err != nil || entry.IsDir() {
			return err
		}
		page, err := fs.ReadFile(docs.Pages, path)
		for _, word := range letters.FindAllString(string(page), -1) {
			words[strings.ToLower(word)] = true
		}
		return err
	})
	return words
})

// Text leaves out each unknown word, and each quotation that is no name.
func (k Known) Text(s string) string {
	s = quoted.ReplaceAllStringFunc(s, func(q string) string {
		if plain, err := strconv.Unquote(q); err == nil && k[plain] {
			return q
		}
		return hidden
	})
	words := strings.Fields(s)
	kept := words[:0]
	for _, word := range words {
		if word = k.word(word); word != hidden || len(kept) == 0 || kept[len(kept)-1] != hidden {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, " ")
}

// word returns the word with its punctuation, or what stands for it.
func (k Known) word(word string) string {
	const punctuation = `.,;:!?()[]{}"`
	if core := strings.Trim(word, punctuation); core == "" || core == hidden || k.has(core) {
		return word
	}
	return hidden
}

func (k Known) has(word string) bool {
	if k[word] || number.MatchString(word) || letters.FindString(word) == word && documented()[strings.ToLower(word)] {
		return true
	}
	if name, value, is := strings.Cut(word, "="); is && k.has(name) && k.has(value) {
		return true
	}
	if _, err := netip.ParseAddr(word); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(word); err == nil {
		return true
	}
	if _, err := time.ParseDuration(word); err == nil {
		return true
	}
	_, err := time.Parse(time.RFC3339, word)
	return err == nil
}

// said are the fields of the JSON that the operator's programs write: logs, progress, receipts. A number or a
// word of another field may be anything.
var said = func() map[string]bool {
	fields := map[string]bool{}
	for _, name := range strings.Fields(`
		ts level msg logger error reason controller controllerKind namespace name kind verb object step from to
		phase itemsDone itemsTotal bytesDone bytesTotal nothingLeft late seconds message waitingSeconds sourceSilent
		version source complete clean found bytes settled sourceVersion survivors survivorsOmitted exitCode
		added alreadyPresent expired invalidated noTextForm rejected failed present evictions evictionsBefore
		number before acknowledged state result`) {
		fields[name] = true
	}
	return fields
}()

// Line is Text for a text that may be JSON. In JSON, the fields that the operator's programs write stay. Half
// of a JSON text is left out, because its quotes can't be told apart.
func (k Known) Line(s string) string {
	trimmed := strings.TrimSpace(s)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return k.Text(s)
	}
	var v any
	if json.Unmarshal([]byte(trimmed), &v) != nil {
		return hidden
	}
	text, err := json.Marshal(k.json(v))
	if err != nil {
		return hidden
	}
	return string(text)
}

func (k Known) json(v any) any {
	switch v := v.(type) {
	case string:
		return k.Text(v)
	case []any:
		for i := range v {
			v[i] = k.json(v[i])
		}
	case map[string]any:
		for name, value := range v {
			if v[name] = k.json(value); !said[name] {
				delete(v, name)
			}
		}
	}
	return v
}
