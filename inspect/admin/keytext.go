package admin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown returns what is shown for a key, in full.
func (p *Page) shown(key string) string {
	if p.opts.ShowKey != nil {
		return plain(p.opts.ShowKey(key))
	}
	return plain(key)
}

// brief returns what is shown for a key in a list.
func (p *Page) brief(key string) string { return shorten(p.shown(key), 96) }

func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// plain returns text as it is, or in quotes if it is empty, or has anything that could be taken for something else.
func plain(text string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || r == '"' || !unicode.IsPrint(r) }
	if text == "" || strings.TrimSpace(text) != text || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// unquoted returns the key that plain shows as text.
func unquoted(text string) string {
	if len(text) > 1 && text[0] == '"' {
		if key, err := strconv.Unquote(text); err == nil {
			return key
		}
	}
	return text
}

// without returns a text in which a key is replaced by what is shown for it.
func (p *Page) without(text, key string) string {
	if p.opts.ShowKey == nil || key == "" {
		return text
	}
	quoted := strconv.Quote(key)
	text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], p.shown(key))
	return strings.ReplaceAll(text, key, p.shown(key))
}

// keyQuery returns the part of an address that names a key.
func (p *Page) keyQuery(key string) string {
	if p.opts.ShowKey == nil {
		return "key=" + url.QueryEscape(key)
	}
	return "id=" + p.sealer.seal(key)
}

// keyID returns the value of a form's field that names a key: base64, because a browser changes bytes that are not
// text; encrypted if keys are not to be shown.
func (p *Page) keyID(key string) string { return p.sealer.seal(key) }

// keyOf returns the key that a request names.
func (p *Page) keyOf(r *http.Request) (string, error) {
	if id := r.FormValue("id"); id != "" {
		key, err := p.sealer.open(id)
		if err != nil {
			return "", &refusal{http.StatusNotFound, "the address names no key", "It may be from before a restart of this page: find the key again."}
		}
		return key, nil
	}
	if key := r.FormValue("key"); key != "" {
		return key, nil
	}
	return "", &refusal{http.StatusNotFound, "the address names no key", "Find the key by its name, or in the list of keys."}
}

// keyIfAny returns the key that a request names, or nothing if it names none: the one that Authorize is asked about.
func (p *Page) keyIfAny(r *http.Request) (string, error) {
	if r.FormValue("id") == "" && r.FormValue("key") == "" {
		return "", nil
	}
	return p.keyOf(r)
}

// sealer encrypts keys, so that they can be in addresses. Equal keys have equal addresses.
type sealer struct {
	aead cipher.AEAD
	mac  []byte
}

func newSealer(secret []byte) sealer {
	derive := func(use string) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(use))
		return mac.Sum(nil)
	}
	block, err := aes.NewCipher(derive("keys"))
	if err != nil {
		panic(err) // 32 bytes are a key of AES
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return sealer{aead, derive("nonces")}
}

func (s sealer) seal(key string) string {
	mac := hmac.New(sha256.New, s.mac)
	mac.Write([]byte(key))
	nonce := mac.Sum(nil)[:s.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, []byte(key), nil))
}

func (s sealer) open(id string) (string, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return "", errors.New("admin: not the ID of a key")
	}
	key, err := s.aead.Open(nil, sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():], nil)
	return string(key), err
}
