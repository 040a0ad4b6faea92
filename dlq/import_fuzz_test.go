package dlq

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/onceq/onceq/broker"
)

// FuzzImportJSON: an export lies in a file that anybody may edit. What is yielded without an error
// is exported and imported again as the same message, and an error names its line.
func FuzzImportJSON(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"body":""}`, `{"message":"1","group":"g","body_base64":"/w==","attributes":{"a":"b"},"onceq":{"v":1,"id":"j","k":"A-1","dead":{"f":7,"c":"timeout"}}}`,
		"{\"message\":\"1\",\"body\":\"x\"}\n{\"message\":\"1\",\"body\":\"y\"}\n{\"mess", `{"id":"2","body":"x","body_base64":"eA==","onceq":null}`, `{"body":"x","onceq":{"v":9}}`, `{"body":"","attributes":{"":""},"onceq":{"v":1,"&0":{"0":0}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for out, err := range ImportJSON(bytes.NewReader(data)) {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "dlq: line ") {
					t.Errorf("an error without its line: %v", err)
				}
				continue
			}
			// Members of later versions may be written in another form of JSON the first time.
			for n := range 2 {
				var file bytes.Buffer
				m := &broker.Message{ID: "m", Body: out.Body, Attributes: out.Attributes, Group: out.Group, Meta: out.Meta}
				if err := ExportJSON(&file)(Entry{Message: m}); err != nil {
					t.Fatal(err)
				}
				for again, err := range ImportJSON(&file) {
					was := out
					out = again
					if again.DedupID = was.DedupID; n == 0 { // it has the message's name in it
						again.Meta = was.Meta
					}
					if len(was.Attributes)+len(again.Attributes) == 0 {
						again.Attributes = was.Attributes
					}
					if err != nil || !reflect.DeepEqual(again, was) {
						t.Errorf("%+v comes back as %+v, %v", was, again, err)
					}
				}
			}
		}
	})
}
