package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"unicode"
)

// plurals are the first words of methods that end in -s and are no verbs: they name what the method
// returns, or works on. A new noun is added here; a verb is put into the imperative instead. The
// last line has words that only end like plurals.
var plurals = strings.Fields(`
	actions answers args attributes attrs bytes canaries columns commands counters counts days
	deliveries directions durations entries events fields flags handlers headers instruments
	jobs keys leases letters lines links messages metrics micros options others pairs
	partitions parts pauses payloads pieces problems questions queues resolutions rows rules
	runs scopes seats settings slots sources steps stores successors tables targets tests
	texts times wakes workers
	aws is plus postgres sqs`)

// checkVerbs reports private methods that are named by a verb in the third person, and answer no
// question: a reader of Go takes such a name for one.
func checkVerbs(t *tree) []string {
	var bad []string
	for _, p := range t.own() {
		for _, f := range p.files {
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil || f.test || fn.Name.IsExported() || answersBool(fn) {
					continue
				}
				word := fn.Name.Name
				if end := strings.IndexFunc(word, unicode.IsUpper); end > 0 {
					word = word[:end]
				}
				if strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss") && !slices.Contains(plurals, word) {
					bad = append(bad, fmt.Sprintf("%s:%d: the method %s is a verb in the third person, and answers no bool:"+
						" say what to do, or name what it returns (a plural noun goes into plurals)", f.name, t.line(fn.Pos()), fn.Name.Name))
				}
			}
		}
	}
	return bad
}

func answersBool(fn *ast.FuncDecl) bool {
	if fn.Type.Results == nil {
		return false
	}
	return slices.ContainsFunc(fn.Type.Results.List, func(r *ast.Field) bool {
		id, ok := r.Type.(*ast.Ident)
		return ok && id.Name == "bool"
	})
}
