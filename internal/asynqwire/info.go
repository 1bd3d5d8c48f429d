package asynqwire

import "time"

// Info is what the message of a task says of it.
type Info struct {
	ID, Queue, Type, Group, LastErr string
	Payload                         []byte
	Headers                         map[string]string
	MaxRetry, Retried               int
	Timeout, Retention              time.Duration
	Deadline                        time.Time
	LastFailedAt, CompletedAt       time.Time // zero if it has not
}

// ReadInfo reads the message of a task. What cannot be read is zero.
func ReadInfo(message string) Info {
	f := parse([]byte(message))
	info := Info{
		ID: f.text(3), Queue: f.text(4), Type: f.text(1), Payload: f.last(2),
		MaxRetry: int(f.number(5)), Retried: int(f.number(6)), LastErr: f.text(7), LastFailedAt: f.moment(11),
		Timeout: time.Duration(f.number(8)) * time.Second, Deadline: f.moment(9), Group: f.text(14),
		Retention: time.Duration(f.number(12)) * time.Second, CompletedAt: f.moment(13),
	}
	for _, header := range f[15] {
		if info.Headers == nil {
			info.Headers = map[string]string{}
		}
		entry := parse(header)
		info.Headers[entry.text(1)] = entry.text(2)
	}
	return info
}

// TransferredFrom reports whether a task that railtoken has moved to another queue was enqueued in this one. Its message then
// names both queues, until it runs again.
func TransferredFrom(message, queue string) bool {
	queues := parse([]byte(message))[4]
	return len(queues) > 1 && string(queues[0]) == queue
}
