package sqsfake

import "unicode/utf8"

// containsOther reports a character that is not an ASCII letter, a digit, or one of also.
func containsOther(s, also string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !containsByte(also, s[i]) {
			return true
		}
	}
	return false
}

func containsByte(s string, c byte) bool {
	for i := range len(s) {
		if s[i] == c {
			return true
		}
	}
	return false
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// validFIFOID holds for message group, deduplication and receive attempt ids.
func validFIFOID(s string) bool {
	return s != "" && len(s) <= 128 && !containsOther(s, punctuation)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const badText = "Invalid characters found: %U. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"

// badCharacter finds the first character that XML 1.0 cannot hold: SQS takes the others
// only. ok means that there is none.
func badCharacter(s string) (bad rune, ok bool) {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return rune(c), false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == 0xFFFE || r == 0xFFFF {
			return r, false
		}
		i += size
	}
	return 0, true
}
