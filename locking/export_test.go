package locking

// Waiting returns how many callers wait in line for a key.
func (g *Gate) Waiting(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.doors[key]; d != nil {
		return len(d.queue)
	}
	return 0
}
