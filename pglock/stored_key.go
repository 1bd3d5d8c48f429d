package pglock

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// maxPlain is the size of the longest key that is stored as it is. PostgreSQL's index takes rows of up to 2704 bytes.
const maxPlain = 1024

// stored returns how a key is stored. Keys of any bytes have different forms: those that are cut are longer than those
// that are not.
func stored(key string) []byte {
	if len(key) <= maxPlain {
		return []byte(key)
	}
	sum := sha256.Sum256([]byte(key))
	return append([]byte(key[:maxPlain]), sum[:]...)
}

// storedKeys are the keys of a lease as they are stored, in the order in which every client locks them.
type storedKeys struct {
	forms  [][]byte
	places []int // of forms among the keys of the lease
}

func newStoredKeys(keys []string) storedKeys {
	s := storedKeys{forms: make([][]byte, len(keys)), places: make([]int, len(keys))}
	type form struct {
		bytes []byte
		place int
	}
	forms := make([]form, len(keys))
	for i, key := range keys {
		forms[i] = form{stored(key), i}
	}
	slices.SortFunc(forms, func(a, b form) int { return cmp.Or(bytes.Compare(a.bytes, b.bytes), a.place-b.place) })
	for i, f := range forms {
		s.forms[i], s.places[i] = f.bytes, f.place
	}
	return s
}

// array returns byte strings as the text of a bytea[]. Drivers have no common way to pass arrays.
func array(values [][]byte) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"\\x`)
		b.WriteString(hex.EncodeToString(v))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
