package rediswire

import (
	"regexp"
	"strings"
)

var (
	luaBegin   = regexp.MustCompile(`^local (?:function (\w+)|([\w, ]+) =)`)
	luaComment = regexp.MustCompile(`--.*`)
	luaWord    = regexp.MustCompile(`\w+`)
)

// Compose returns a Lua script with those definitions of a library before it that it needs, directly or through others,
// in the library's order. So a script carries, and a server runs, no function that it does not use.
//
// A definition of a library begins at the beginning of a line with "local": a function, up to a line that is "end", or
// variables in one line. Comments between them are left out. A definition is needed if its name is in what needs it.
func Compose(library, script string) string {
	type definition struct{ names, text string }
	var all []definition
	inside := false
	for line := range strings.Lines(library) {
		begin := luaBegin.FindStringSubmatch(line)
		switch {
		case begin != nil:
			all = append(all, definition{begin[1] + begin[2], line})
			inside = begin[1] != ""
		case inside:
			all[len(all)-1].text += line
			inside = line != "end\n"
		}
	}
	known := map[string]bool{}
	learn := func(text string) {
		for _, word := range luaWord.FindAllString(luaComment.ReplaceAllString(text, ""), -1) {
			known[word] = true
		}
	}
	learn(script)
	var needed []string
	for i := len(all) - 1; i >= 0; i-- {
		for name := range strings.SplitSeq(all[i].names, ", ") {
			if known[name] {
				learn(all[i].text)
				needed = append([]string{all[i].text}, needed...)
				break
			}
		}
	}
	return strings.Join(needed, "") + script
}
