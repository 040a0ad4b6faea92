package webonceq

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// The table is that of RFC 7396, appendix A, and what a body of jobs needs beside it.
func TestMergePatch(t *testing.T) {
	for _, c := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"cents":12345678901234567890.10,"z":1,"a":2}`, `{"a":3}`, `{"cents":12345678901234567890.10,"z":1,"a":3}`},
		{`{ "a" : { "x" : 1 } , "b" : "<&>é" }`, `{"c":"<"}`, `{"a":{ "x" : 1 },"b":"<&>é","c":"<"}`},
		{`{"a":1,"a":2}`, `{"a":3}`, `{"a":3,"a":3}`},
		{`{"a":1,"a":2}`, `{"a":null}`, `{}`},
		{`{"<k>":1}`, `{"a":1}`, `{"<k>":1,"a":1}`},
	} {
		got, err := mergePatch([]byte(c.target), []byte(c.patch))
		if err != nil || string(got) != c.want {
			t.Errorf("%s with %s: %s, %v; want %s", c.target, c.patch, got, err, c.want)
		}
		again, err := mergePatch(got, []byte(c.patch))
		if err != nil || string(again) != string(got) {
			t.Errorf("%s with %s, twice: %s, %v", c.target, c.patch, again, err)
		}
	}
	deep := strings.Repeat(`{"a":`, maxPatchDepth+2) + `1` + strings.Repeat(`}`, maxPatchDepth+2)
	for _, c := range []struct{ target, patch, want string }{
		{"no json", `{}`, "the body is not JSON"},
		{`{}`, `{`, "the patch is not JSON"},
		{`{}`, `[]`, "no JSON object"},
		{`{}`, `null`, "no JSON object"},
		{`{}`, deep, "more than 100 deep"},
	} {
		if got, err := mergePatch([]byte(c.target), []byte(c.patch)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %s, %v; want %q", c.target, cut(c.patch, 20), got, err, c.want)
		}
	}
}

// A patch means what the RFC's own words make of decoded values.
func FuzzMergePatch(f *testing.F) {
	f.Add(`{"a":{"b":1},"c":[1,null]}`, `{"a":{"b":null,"d":{"e":null}},"c":{"x":1}}`)
	f.Add(`[1]`, `{"a":null}`)
	f.Add(`{"a":1,"A":2}`, `{"A":null}`)
	f.Fuzz(func(t *testing.T, target, patch string) {
		got, err := mergePatch([]byte(target), []byte(patch))
		if err != nil {
			return
		}
		var before, change, after any
		if json.Unmarshal([]byte(target), &before) != nil || json.Unmarshal([]byte(patch), &change) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q with %q is no JSON: %q, %v", target, patch, got, err)
		}
		if want := decoded(before, change); !twice(patch) && !twice(target) && !reflect.DeepEqual(after, want) {
			t.Errorf("%q with %q: %q, want %v", target, patch, got, want)
		}
	})
}

// decoded is the RFC's MergePatch, word by word.
func decoded(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	of, ok := target.(map[string]any)
	if !ok {
		of = map[string]any{}
	}
	for name, value := range p {
		if value == nil {
			delete(of, name)
		} else {
			of[name] = decoded(of[name], value)
		}
	}
	return of
}

// twice reports whether an object may have a name twice: there the RFC says nothing.
func twice(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	seen := map[string]bool{}
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if s, ok := token.(string); ok {
			if seen[s] {
				return true
			}
			seen[s] = true
		}
	}
}
