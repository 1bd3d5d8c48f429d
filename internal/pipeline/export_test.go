package pipeline

// Queued returns how many calls wait to be sent.
func (s *Server) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.size()
}

// QueuedFor returns how many calls wait for the master that has a key.
func QueuedFor(c Caller, key string) int {
	m, _ := c.(*masters)
	return m.of(NewCall(nil, NewScript(""), []string{key})).Queued()
}
