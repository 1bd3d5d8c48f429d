package middleware

// SlotBudget is that of a server.
type SlotBudget = slotBudget

// InUse returns how many tasks wait in their slots.
func (s *slotBudget) InUse() int { return int(s.waiting.Load()) }
