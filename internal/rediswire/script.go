package rediswire

import (
	"regexp"
	"strings"
	"sync"
)

// luaBegin is the beginning of a definition of a library.
var luaBegin = regexp.MustCompile(`^local (?:function (\w+)|([\w, ]+) =)`)

// definition is one of a library: the names that it defines, its text, and the words of that.
type definition struct {
	names []string
	text  string
	words []string
}

// libraries has the definitions of each library, which is read once.
var libraries sync.Map

// Compose returns a Lua script with those definitions of a library before it that it needs, directly or through others,
// in the library's order. So a script carries, and a server runs, no function that it does not use.
//
// A definition of a library begins at the beginning of a line with "local": a function, up to a line that is "end", or
// variables in one line. Comments between them are left out. A definition is needed if its name is in what needs it.
func Compose(library, script string) string {
	all := definitionsOf(library)
	known := map[string]bool{}
	learn := func(words []string) {
		for _, word := range words {
			known[word] = true
		}
	}
	learn(luaWords(script))
	needed := make([]bool, len(all))
	size := len(script)
	for i := len(all) - 1; i >= 0; i-- {
		for _, name := range all[i].names {
			needed[i] = needed[i] || known[name]
		}
		if needed[i] {
			learn(all[i].words)
			size += len(all[i].text)
		}
	}
	var b strings.Builder
	b.Grow(size)
	for i, each := range all {
		if needed[i] {
			b.WriteString(each.text)
		}
	}
	b.WriteString(script)
	return b.String()
}

// definitionsOf returns the definitions of a library.
func definitionsOf(library string) []definition {
	if known, ok := libraries.Load(library); ok {
		return known.([]definition) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	var all []definition
	inside := false
	for line := range strings.Lines(library) {
		switch {
		case strings.HasPrefix(line, "local "):
			begin := luaBegin.FindStringSubmatch(line)
			if begin == nil {
				continue
			}
			all = append(all, definition{names: strings.Split(begin[1]+begin[2], ", "), text: line})
			inside = begin[1] != ""
		case inside:
			all[len(all)-1].text += line
			inside = line != "end\n"
		}
	}
	for i := range all {
		all[i].words = luaWords(all[i].text)
	}
	libraries.Store(library, all)
	return all
}

// luaWords returns the words of Lua code, without those of its comments.
func luaWords(code string) (words []string) {
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, "--")
		words = append(words, strings.FieldsFunc(line, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		})...)
	}
	return words
}
