package ends

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// Ending is an end that the script of an acknowledgement is to note.
type Ending struct {
	Key, Member string // of the mark
	Archived    string // see ends.lua
	// Unread says that the message is missing at the end of the Member.
	Unread bool
	// Told is called when the script has noted it.
	Told func()
}

// Ending returns the mark of an end that is about to be written, or nil if nobody is to hear of it. archivedAt is when the
// task is archived (s), as asynq's script says. t may be nil.
func (t *Teller) Ending(m Mark, archivedAt string) *Ending {
	if !t.Hears(m.State) {
		return nil
	}
	text, began := m.String(), time.Now()
	e := &Ending{Key: m.Key(), Member: text, Unread: m.Message == ""}
	if at, err := strconv.ParseInt(archivedAt, 10, 64); err == nil && m.State == Archived {
		e.Archived = m.archivedAs(at)
	}
	e.Told = func() {
		if !e.Unread {
			t.Tell(text, m, began)
		}
	}
	return e
}

//go:embed lua/acknowledge.lua
var acknowledgeSource string

// acknowledgeScripts are the scripts of acknowledge.lua by asynq's text.
var acknowledgeScripts sync.Map

// Script returns the script that ends a task by asynq's own, which has this text: see acknowledge.lua.
func Script(text string) *redis.Script {
	known, ok := acknowledgeScripts.Load(text)
	if !ok {
		known, _ = acknowledgeScripts.LoadOrStore(text,
			redis.NewScript(rediswire.Compose(Functions, strings.Replace(acknowledgeSource, "--SCRIPT--", text, 1))))
	}
	script, _ := known.(*redis.Script)
	return script
}

// Arguments returns the keys and arguments of that script. at is the position of the task's hash in the keys of asynq's, and run the
// one that is to end, "" if it is not known. e may be nil.
func (e *Ending) Arguments(keys []string, args []any, at int, run string) ([]string, []any) {
	args = append(append(make([]any, 0, len(args)+6), args...), at+1)
	if e == nil {
		return keys, append(args, "", 0, "", 0, run)
	}
	unread := 0
	if e.Unread {
		unread = 1
	}
	keys = append(append(make([]string, 0, len(keys)+1), keys...), e.Key)
	return keys, append(args, e.Member, Unclaimed.Milliseconds(), e.Archived, unread, run)
}
