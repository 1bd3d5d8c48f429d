package redistest

// RunOnPortOf moves a stopped server to the port of another and runs it.
func (s *Server) RunOnPortOf(other *Server) error {
	s.port = other.port
	return s.run()
}
