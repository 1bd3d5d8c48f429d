package line

import (
	"crypto/sha1" //nolint:gosec // as in bring_back.lua: it tells states of one task apart
	"encoding/hex"
	"fmt"
)

// DeathsField and NonceField are the fields of a task's hash that [Deaths] needs.
const (
	DeathsField = "railtoken:deaths"
	NonceField  = "railtoken:nonce"
)

// Deaths returns how many runs of a task in a row have ended with their workers, by three fields of its hash: see bring_back.lua.
func Deaths(deaths, message, nonce any) int {
	text, _ := deaths.(string)
	msg, _ := message.(string)
	last, _ := nonce.(string)
	sum := sha1.Sum([]byte(msg + "|" + last)) //nolint:gosec // see above
	var n int
	var like string
	if _, err := fmt.Sscanf(text, "%d %s", &n, &like); err != nil || like != hex.EncodeToString(sum[:])[:16] {
		return 0
	}
	return n
}
