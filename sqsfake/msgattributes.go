package sqsfake

import (
	"slices"
	"strings"
)

// This file owns message attributes: how they are read, checked, chosen and written. input.go,
// send.go and receive.go call it, without the server's lock: attributes never change after they
// were read.

// attribute is a message attribute.
type attribute struct {
	name     string
	dataType string
	text     string
	binary   []byte
	hasText  bool
	hasBlob  bool
	// hasList: AWS keeps the list values for later; whoever sends one gets an error.
	hasList bool
}

func (a *attribute) isBinary() bool { return strings.HasPrefix(a.dataType, "Binary") }

func (a *attribute) size() int64 {
	return int64(len(a.name) + len(a.dataType) + len(a.text) + len(a.binary))
}

// readAttributes reads a map of attributes, ordered by name.
func readAttributes(r *reader, what string) []attribute {
	var as []attribute
	r.object(what, func(key []byte) {
		a := attribute{name: string(key)}
		r.object(what+"."+a.name, func(key []byte) {
			switch string(key) {
			case "DataType":
				a.dataType = r.text("DataType")
			case "StringValue":
				a.text, a.hasText = r.text("StringValue"), true
			case "BinaryValue":
				a.binary, a.hasBlob = r.blob("BinaryValue"), true
			case "StringListValues":
				a.hasList = len(r.list("StringListValues")) > 0 || a.hasList
			case "BinaryListValues":
				a.hasList = len(r.list("BinaryListValues")) > 0 || a.hasList
			default:
				r.failf("%s.%s has no parameter %q", what, a.name, key)
			}
		})
		as = append(as, a)
	})
	slices.SortStableFunc(as, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	return as
}

// maxAttributes is the most that a message may have.
const maxAttributes = 10

func checkAttributes(as []attribute) *apiError {
	if len(as) > maxAttributes {
		return errParameter.withf("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(as), maxAttributes)
	}
	for i := range as {
		a := &as[i]
		if err := checkAttributeName(a.name); err != nil {
			return err
		}
		if i > 0 && as[i-1].name == a.name {
			return errParameter.withf("Message (user) attribute '%s' is given twice.", a.name)
		}
		if err := a.check(); err != nil {
			return err
		}
	}
	return nil
}

func checkAttributeName(name string) *apiError {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return errParameter.withf("Message (user) attribute names must not be empty.")
	case len(name) > 256:
		return errParameter.withf("Message (user) attribute names must be shorter than 256 Bytes")
	case containsOther(strings.Map(plain, name), "_-."):
		return errParameter.withf("Message (user) attributes name can only contain upper and lower score characters, digits, periods, hyphens and underscores.")
	case strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."), name[0] == '.', strings.HasSuffix(name, "."):
		return errParameter.withf("You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use. Additionally, they cannot start or end with '.'.")
	case strings.Contains(name, ".."):
		return errParameter.withf("Message (user) attribute name '%s' must not contain successive periods.", name)
	}
	return nil
}

// plain makes an ASCII letter of a letter that AWS takes in names of attributes besides: those of
// Latin-1 and Latin Extended-A. AWS documents none of them; LocalStack's recordings have some.
func plain(r rune) rune {
	if 0xC0 <= r && r <= 0x17F {
		return 'x'
	}
	return r
}

func (a *attribute) check() *apiError {
	kind, _, _ := strings.Cut(a.dataType, ".")
	switch {
	case a.dataType == "":
		return errParameter.withf("The message attribute '%s' must contain a non-empty message attribute type.", a.name)
	case kind != "String" && kind != "Number" && kind != "Binary":
		return errParameter.withf("The message attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", a.name)
	case len(a.dataType) > 256:
		return errParameter.withf("Message (user) attribute types must be shorter than 256 Bytes")
	case a.hasList:
		return errUnsupported.withf("Message attribute list values in the message attribute '%s' are not supported.", a.name)
	case a.hasText && a.hasBlob:
		return errParameter.withf("Message (user) attribute '%s' has more than one value.", a.name)
	case kind == "Binary" && len(a.binary) == 0, kind != "Binary" && a.text == "":
		return errParameter.withf("Message (user) attribute '%s' must contain a non-empty value of type '%s'.", a.name, kind)
	case kind == "Number" && !isNumber(a.text):
		return errParameter.withf("Can't cast the value of message (user) attribute '%s' to a number.", a.name)
	}
	if r, ok := badCharacter(a.text); !ok {
		return errParameter.withf(badText, r) // another code than that of a body: LocalStack's recordings of AWS
	}
	return nil
}

// isNumber holds for a decimal number, perhaps with a fraction and an exponent.
func isNumber(s string) bool {
	s = strings.TrimLeft(s, "+-")
	mantissa, exponent, hasExponent := strings.Cut(strings.ToLower(s), "e")
	if hasExponent && !allDigits(strings.TrimLeft(exponent, "+-")) {
		return false
	}
	whole, fraction, hasPoint := strings.Cut(mantissa, ".")
	if !hasPoint {
		return allDigits(whole)
	}
	return allDigits(whole + fraction)
}

// selectAttributes is the part of as that a receive asks for: by name, by a prefix that
// ends in ".*", or all. Names that no attribute can have are passed over, as AWS does.
func selectAttributes(as []attribute, names []string) []attribute {
	if len(as) == 0 || len(names) == 0 {
		return nil
	}
	for _, n := range names {
		if n == "All" || n == ".*" || n == "*" {
			return as
		}
	}
	var chosen []attribute
	for i := range as {
		for _, n := range names {
			if prefix, ok := strings.CutSuffix(n, ".*"); n == as[i].name || ok && strings.HasPrefix(as[i].name, prefix) {
				chosen = append(chosen, as[i])
				break
			}
		}
	}
	return chosen
}

func writeAttributes(w *writer, as []attribute) {
	w.key("MessageAttributes")
	w.open('{')
	for i := range as {
		a := &as[i]
		w.key(a.name)
		w.open('{')
		w.field("DataType", a.dataType)
		if a.isBinary() {
			w.blobField("BinaryValue", a.binary)
		} else {
			w.field("StringValue", a.text)
		}
		w.close('}')
	}
	w.close('}')
}
