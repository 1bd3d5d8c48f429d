package measure

// Turns returns the order in which n contestants are measured in a round: it begins with another one each time, and every other
// time it runs backwards, so that none always follows the same one and a slow change of the machine meets all alike.
func Turns(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round/2) % n
		if round%2 == 1 {
			order[i] = n - 1 - order[i]
		}
	}
	return order
}
