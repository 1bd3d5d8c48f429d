package rediswire

import "strings"

// empty is the encoding of the empty business key. No other key has it, because Encode writes two hexadecimal digits
// after each percent sign.
const empty = "%"

const upperHex = "0123456789ABCDEF"

// Encode encodes a key for use between the braces of a Redis hash tag: the result is not empty, and has no braces,
// spaces, control characters or bytes outside ASCII. Different keys have different encodings. Keys of letters, digits
// and common punctuation stay as they are, so that operators can read them.
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

// Decode returns the business key with this encoding, and false if there is none. The tag of a lane and its brace may stand
// before it: see package lanes.
func Decode(encoded string) (string, bool) {
	if _, key, inLane := strings.Cut(encoded, "}"); inLane {
		encoded = key
	}
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

// plain reports whether Encode leaves c as it is.
func plain(c byte) bool {
	return c > ' ' && c < 0x7f && c != '%' && c != '{' && c != '}'
}

// Slot returns the Redis Cluster slot, 0 to 16383, of a Redis key name: CRC16 of its hash tag, or of the whole name
// when it has none (Redis Cluster specification, "Hash tags").
func Slot(name string) int {
	return int(Checksum(0, Tag(name)) % 16384)
}

// Tag returns the part of a Redis key name that determines its slot: the text between the first opening brace and the
// first closing brace after it, or the whole name if there is no such text or it is empty.
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

// Checksum continues CRC-16/XMODEM, the checksum that Redis Cluster prescribes. It begins with 0.
func Checksum[T string | []byte](sum uint16, s T) uint16 {
	for i := range len(s) {
		sum = sum<<8 ^ checksums[byte(sum>>8)^s[i]]
	}
	return sum
}

// checksums are those of single bytes.
var checksums = func() (all [256]uint16) {
	for i := range all {
		sum := uint16(i) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
		all[i] = sum
	}
	return all
}()
