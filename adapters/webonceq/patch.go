package webonceq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// This file owns JSON merge patches (RFC 7396). What a patch does not name keeps its bytes and its
// place: numbers that no float64 holds stay as they are. All of it is a function of its arguments,
// because a replay that is run again must send the same.

// maxPatchDepth bounds how deep objects of a patch may lie in each other.
const maxPatchDepth = 100

// member is one of an object's.
type member struct {
	name  string
	value json.RawMessage
}

// mergePatch is the target with the patch merged into it. Both are JSON.
func mergePatch(target, patch []byte) ([]byte, error) {
	if !json.Valid(target) {
		return nil, errors.New("the body is not JSON, so a patch means nothing for it")
	}
	if err := checkPatch(patch); err != nil {
		return nil, err
	}
	return merged(target, patch, 0)
}

func checkPatch(patch []byte) error {
	if !json.Valid(patch) {
		return errors.New("the patch is not JSON")
	}
	if _, ok := members(patch); !ok {
		return errors.New("the patch is no JSON object: it would replace each body by the same value")
	}
	return nil
}

// merged is the RFC's MergePatch. An empty target stands for one that is not there.
func merged(target, patch json.RawMessage, depth int) (json.RawMessage, error) {
	change, ok := members(patch)
	if !ok {
		return patch, nil
	}
	if depth > maxPatchDepth {
		return nil, fmt.Errorf("the patch has objects more than %d deep", maxPatchDepth)
	}
	of, _ := members(target)
	for _, c := range change {
		i := slices.IndexFunc(of, func(m member) bool { return m.name == c.name })
		if bytes.Equal(bytes.TrimSpace(c.value), []byte("null")) {
			of = slices.DeleteFunc(of, func(m member) bool { return m.name == c.name })
			continue
		}
		var before json.RawMessage
		if i >= 0 {
			before = of[i].value
		}
		value, err := merged(before, c.value, depth+1)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			of = append(of, member{c.name, value})
			continue
		}
		for j := range of { // a name that stands twice: readers differ in which one counts
			if of[j].name == c.name {
				of[j].value = value
			}
		}
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range of {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quoted(m.name))
		b.WriteByte(':')
		b.Write(bytes.TrimSpace(m.value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// quoted is a name as JSON, with its own characters.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string has a form
	return bytes.TrimSpace(b.Bytes())
}

// members are those of an object, in their order; false where it is none.
func members(raw json.RawMessage) (ms []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, false
		}
		ms = append(ms, member{name.(string), value})
	}
	_, err := d.Token()
	return ms, err == nil || err == io.EOF
}
