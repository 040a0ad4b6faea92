package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const manySided = `package sample

type box[T any] struct{ v T }

var outside = 1

func (b *box[T]) get(_ int, more ...T) (T, bool) { return b.v, len(more) > 1 }

func (*box[T]) none() { _ = "none" }

func first[K comparable, V any](k, l K, m map[K]V) (v V, err error) {
	if k == l {
		return m[k], nil
	}
	return v, err
}

func guarded() (err error) {
	_ = "guarded"
	recover()
	return nil
}

func use() (int, error) {
	b := &box[int]{}
	b.none()
	n, _ := b.get(1, 2, 3)
	_, err := first("a", "b", map[string]int{})
	return n, err
}
`

// The rule: a file with the breaks of many rows in it is Go, and a row whose break cannot be put so
// is played alone.
func TestManyBreaksInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sample.go")
	if err := os.WriteFile(file, []byte(manySided), 0o600); err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, m := range [][2]string{
		{"len(more) > 1", "len(more) > 2"},
		{"return b.v,", "return more[0],"},
		{`_ = "none"`, ""},
		{"k == l", "k != l"},
		{"outside = 1", "outside = 2"},
		{`_ = "guarded"`, ""},
		{"not there", ""},
		{"return v, err", "return m[l], nil"},
	} {
		rows = append(rows, row{mutant: mutant{File: file, Text: m[0], With: m[1]}})
	}
	text, put, err := withAll(file, rows, []int{0, 1, 2, 3, 4, 5, 6, 7})
	if want := []int{0, 1, 2, 3, 7}; err != nil || !slices.Equal(put, want) {
		t.Errorf("put together are %v, %v; want %v", put, err, want)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, src := range []string{text, "package sample\n\nvar mutantOfOnceq string\n"} {
		f, err := parser.ParseFile(set, "", src, 0)
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		files = append(files, f)
	}
	if _, err := new(types.Config).Check("sample", set, files, nil); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
