package admin_test

import "github.com/railtoken/railtoken/internal/parking"

func waitersKey(key string) string { return parking.WaitersKey(key) }

func entryOf(queue, id string) string { return parking.Task{Queue: queue, ID: id}.Entry() }
