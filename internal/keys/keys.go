// Package keys turns business keys, whatever bytes they hold, into parts of Redis key names.
package keys

import "strings"

// empty stands for the empty business key. A lone percent sign is never the encoding of anything else, because Encode
// always writes two hexadecimal digits after one.
const empty = "%"

const upperHex = "0123456789ABCDEF"

// Encode returns key in a form that may stand between the braces of a Redis hash tag: no brace, space, control
// character or byte outside ASCII, and never empty. Different keys have different encodings, and ordinary keys
// (letters, digits and common punctuation) stay as they are, so that an operator can read them.
func Encode(key string) string {
	if key == "" {
		return empty
	}
	extra := 0
	for i := range len(key) {
		if !plain(key[i]) {
			extra += 2
		}
	}
	if extra == 0 {
		return key
	}
	var b strings.Builder
	b.Grow(len(key) + extra)
	for i := range len(key) {
		c := key[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

// Decode returns the business key that Encode made encoded from, and false when encoded is nothing that Encode returns.
func Decode(encoded string) (string, bool) {
	if encoded == empty {
		return "", true
	}
	if encoded == "" {
		return "", false
	}
	var b strings.Builder
	b.Grow(len(encoded))
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c != '%' {
			if !plain(c) {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(encoded) {
			return "", false
		}
		hi, lo := strings.IndexByte(upperHex, encoded[i+1]), strings.IndexByte(upperHex, encoded[i+2])
		if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

// plain reports whether c stands for itself.
func plain(c byte) bool {
	return c > ' ' && c < 0x7f && c != '%' && c != '{' && c != '}'
}

// Slot returns the Redis Cluster slot, 0 to 16383, of a Redis key name: CRC16 of its hash tag, or of the whole name
// when it has none (Redis Cluster specification, "Hash tags").
func Slot(name string) int {
	return int(crc16(Tag(name)) % 16384)
}

// Tag returns the part of a Redis key name that decides its slot: what stands between the first opening brace and the
// first closing brace after it, or the whole name when there is no such part or it is empty.
func Tag(name string) string {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name
	}
	size := strings.IndexByte(name[open+1:], '}')
	if size <= 0 {
		return name
	}
	return name[open+1 : open+1+size]
}

// crc16 is CRC-16/XMODEM, the checksum that Redis Cluster prescribes.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
