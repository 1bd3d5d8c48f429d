package pipeline

// Queued returns how many calls wait to be sent.
func (s *Server) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.size()
}
