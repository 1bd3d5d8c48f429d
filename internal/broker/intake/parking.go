package intake

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// Parking lets the script that fetches tasks park them: those of whose keys one is held, if as many others are already
// parked on that key as [colocated.Wait] says, none in order, and if they were never refused before. Such tasks have no slot and no run, and asynq never
// sees them. Parking also lets the script that acknowledges tasks wake others.
type Parking struct {
	// Source is that of Lua functions: see those of package line that park and wake.
	Source string
	// Unserved returns the queues that no server fetches from: the script wakes none of their tasks, as for paused queues.
	Unserved func() []string
	// Parked is called with the tasks that a call has parked. If its reply was lost, they still wait; Parked is not called.
	Parked func([]Parked)
}

// Parked are tasks of one type in one queue that were parked by one call, because the same key was held.
type Parked struct {
	Queue, Type string
	IDs         []string
	*colocated.Refused
	// First is when they were first refused, by the clock of Redis. Ahead is how many tasks stand before the first of
	// them; each of the others has one more before it.
	First time.Time
	Ahead int
}

// source returns that of a script that takes tasks. p may be nil.
func (p *Parking) source(script string) string {
	parking := ""
	if p != nil {
		parking = p.Source
	}
	return lockwire.Script(strings.Replace(grantSource, "--PARKING--", parking, 1) + script)
}

// unserved returns the queues of which no server fetches tasks as the scripts read them. p may be nil.
func (p *Parking) unserved() string {
	if p == nil || p.Unserved == nil {
		return ""
	}
	queues := p.Unserved()
	if len(queues) == 0 {
		return ""
	}
	return "|" + strings.Join(queues, "|") + "|"
}

// parked reads which tasks a call has parked. more says that it has stopped, and there may be others behind those that it has parked
// or taken. It leaves out tasks whose recorded keys cannot be read: an error would lose the tasks that came in the same reply.
func (r *reader) parked(value any) (all []Parked, more bool, err error) {
	list, _ := value.([]any)
	if len(list) == 0 || len(list) > 1 && r.locks == nil {
		return nil, false, fmt.Errorf("%w: parked %v", errReply, value)
	}
	for _, value := range list[1:] {
		group, _ := value.([]any)
		if len(group) < 6 {
			return all, false, fmt.Errorf("%w: parked %v", errReply, value)
		}
		queue, err := r.queue(group[0])
		if err != nil {
			return all, false, err
		}
		text := func(i int) string { s, _ := group[i].(string); return s }
		p := Parked{Queue: queue, Type: text(1), Refused: r.refused(text(2), group[3])}
		if us, err := strconv.ParseInt(text(4), 10, 64); err == nil {
			p.First = time.UnixMicro(us)
		}
		ahead, isNumber := group[5].(int64)
		if !isNumber {
			return all, false, fmt.Errorf("%w: parked %v", errReply, value)
		}
		if p.Refused == nil {
			continue
		}
		p.Ahead = int(ahead)
		for i := range group[6:] {
			p.IDs = append(p.IDs, text(6+i))
		}
		all = append(all, p)
	}
	return all, list[0] == int64(1), nil
}
