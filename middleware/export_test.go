package middleware

// InUse returns how many tasks wait in their slots.
func (s *SlotBudget) InUse() int { return int(s.waiting.Load()) }
