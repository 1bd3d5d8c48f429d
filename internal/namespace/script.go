package namespace

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// texts maps the SHA-1 of scripts that were sent to those of their texts in a namespace: Redis knows the latter. A script
// is added when its text is sent, which go-redis and this module do whenever a server does not know its SHA-1.
var texts sync.Map

// text is a script in a namespace.
type text struct {
	in  Namespace
	sum string
}

// nowhere is the SHA-1 of no script. It stands for that of a script whose text is not known, so that Redis asks for the text.
const nowhere = "ffffffffffffffffffffffffffffffffffffffff"

// sumOf returns the SHA-1 that a script has in Redis, by its own.
func (n Namespace) sumOf(sum string) string {
	if in, ok := texts.Load(text{n, strings.ToLower(sum)}); ok {
		return in.(string) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	return nowhere
}

// learn returns the text that a script has in Redis, and notes its SHA-1.
func (n Namespace) learn(source string) string {
	in := n.script(source)
	sum := sumOf(in)
	texts.Store(text{n, sumOf(source)}, sum)
	texts.Store(text{n, sum}, sum) // as SCRIPT LOAD returns it
	return in
}

func sumOf(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis identifies scripts so
	return hex.EncodeToString(sum[:])
}

// before begins each script in a namespace. It stands in the script's first line, so that the numbers of lines stay. The
// tables redis and KEYS are the script's own from then on. Redis has only commands of which the text has the name.
const before = `local redis,KEYS=(function(ns,redis,KEYS,at)
local function named(name)%s return ns..name end
local function wrap(call) return function(command,name,...)
local shape=at[command]
if shape==1 then return call(command,named(name),...) end
if shape==0 then if name==nil then return call(command) end return call(command,name,...) end
if not shape then error('ERR the script calls '..tostring(command)..', whose keys are not known in a namespace',0) end
local all={name,...}
local from,to,step=shape[1],shape[2] or #all,shape[3] or 1
if shape[4] then if shape[4]==2 then all[1]=named(all[1]) end to=shape[4]+tonumber(all[shape[4]]) end
for i=from,to,step do if all[i] then all[i]=named(all[i]) end end
return call(command,unpack(all)) end end
local keys={}
for i,key in ipairs(KEYS) do if string.sub(key,1,#ns)==ns then key=string.sub(key,#ns+1) end keys[i]=key end
return setmetatable({call=wrap(redis.call),pcall=wrap(redis.pcall)},{__index=redis}),keys
end)('%s',redis,KEYS,{%s}) `

// luaShapes has the entries of the table at, for a script that calls such a command: 1 for a name as its first argument, 0
// for none, and otherwise the positions of the first and the last name, the step, and the position of their number.
var luaShapes = map[shape]string{
	none: "0", first: "1", second: "{2,2}", both: "{1,2}", all: "{1}", fromSecond: "{2}", pairs: "{1,nil,2}", counted: "{2,nil,1,1}",
	stored: "{3,nil,1,2}",
}

// quoted matches what may be the name of a command in a script.
var quoted = regexp.MustCompile(`'[A-Za-z_]+'|"[A-Za-z_]+"`)

// script returns the text of a script in the namespace.
func (n Namespace) script(source string) string {
	var at []string
	for _, word := range quoted.FindAllString(source, -1) {
		word = word[1 : len(word)-1]
		if entry, known := luaShapes[shapes[strings.ToLower(word)]]; known {
			at = append(at, fmt.Sprintf("['%s']=%s", word, entry))
		}
	}
	slices.Sort(at)
	spare := ""
	if !n.Tasks {
		spare = fmt.Sprintf(" if string.sub(name,1,%d)=='%s' then return name end", len(theirs), theirs)
	}
	begin := strings.ReplaceAll(fmt.Sprintf(before, spare, n.String(), strings.Join(slices.Compact(at), ",")), "\n", " ")
	if strings.HasPrefix(source, "#!") { // the line that Redis reads
		line, rest, _ := strings.Cut(source, "\n")
		return line + "\n" + begin + rest
	}
	return begin + source
}
