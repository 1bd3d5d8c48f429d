package lanemove

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Record returns the name of the hash beside a queue that notes the moves under way: the number of the last move, and for each
// task that was taken where it goes, or of a lane, for each copy that was activated, that it was.
func Record(queue string) string { return recordPrefix + queue + "}" }

const recordPrefix = "railtoken:move:{"

// taskPrefix begins the field of a task in a record.
const taskPrefix = "t:"

// note is what the record of a queue says of a task that was taken.
type note struct {
	state    string
	score    string // in the set in which it was
	position string // in the sequence of its key; none if it is in none
	to       string // the queue in its lane
}

const none = "-"

// rest returns what the script notes behind the state and the score.
func (n note) rest() string { return n.position + " " + n.to }

// parseNote reads a field of a record.
func parseNote(text string) (n note, err error) {
	words := strings.SplitN(text, " ", 4)
	if len(words) != 4 {
		return n, fmt.Errorf("the note %q of a move cannot be read", text)
	}
	return note{words[0], words[1], words[2], words[3]}, nil
}

// Unfinished returns how many tasks of a queue a move has taken that has not put them into their lanes yet. Unless the move is under
// way, they are in no set of asynq's, and wait for the next move.
func Unfinished(ctx context.Context, client redis.UniversalClient, queue string) (int, error) {
	n, err := client.HLen(ctx, Record(queue)).Result()
	return Taken(n), err
}

// Taken returns how many tasks a record of this size notes: one field is the number of the move.
func Taken(size int64) int { return max(int(size)-1, 0) }
