package admin_test

import "github.com/railtoken/railtoken/internal/line"

func waitersKey(key string) string { return line.Names{}.Waiters(key) }

func entryOf(queue, id string) string { return line.Task{Queue: queue, ID: id}.Entry() }
