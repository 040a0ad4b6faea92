package runbook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const night = `# Runbook

## A. One

**Signature.** What one sees.

` + "```console" + `
$ onceq queue ls
orders …  4
# mend it
$ GROUP=$(onceq -q dlq group orders | head -1)
$ onceq dlq "replay it" $GROUP > x.md
exit 1
` + "```" + `
`

// read reads a page.
func read(t *testing.T, text string) ([]Night, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

// TestPlay: a player types what stands in the page, and compares.
func TestPlay(t *testing.T) {
	ns, err := read(t, night)
	if err != nil || len(ns) != 1 || len(ns[0].Steps) != 4 || ns[0].Steps[3].Exit != 1 {
		t.Fatalf("%+v %v", ns, err)
	}
	var typed []string
	mended := false
	p := Player{Dir: t.TempDir(), Do: map[string]func(){"mend it": func() { mended = true }}}
	p.Run = func(words []string) (int, string, string) {
		typed = append(typed, strings.Join(words, "|"))
		switch words[len(words)-1] {
		case "ls":
			return 0, "QUEUE LETTERS\norders    2 ok 4\n", "next: x\n"
		case "orders":
			return 0, "9f9d\n77aa\n", ""
		}
		return 1, "sent\n", "no\n"
	}
	for i := range ns[0].Steps {
		if err := p.Play(&ns[0].Steps[i]); err != nil {
			t.Error(err)
		}
	}
	if got, want := strings.Join(typed, " "), "onceq|queue|ls onceq|-q|dlq|group|orders onceq|dlq|replay it|9f9d"; got != want || !mended {
		t.Errorf("typed %s, want %s; mended: %v", got, want, mended)
	}
	if kept, err := os.ReadFile(filepath.Join(p.Dir, "x.md")); err != nil || string(kept) != "sent\n" {
		t.Errorf("%q %v", kept, err)
	}
}

// TestPlayDiffers: what the page does not have is an error.
func TestPlayDiffers(t *testing.T) {
	p := Player{Run: func([]string) (int, string, string) { return 0, "orders 4 letters\n", "" }}
	for want, s := range map[string]Step{
		"exit 0, the page has 5":     {Line: "onceq x", Exit: 5},
		"the page has\norders …":     {Line: "onceq x", Want: []string{"orders … letter"}},
		"$GROUP has no value":        {Line: "onceq x $GROUP"},
		`nobody knows how to "mend"`: {Line: "# mend"},
	} {
		if err := p.Play(&s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, text := range []string{"```console\n$ onceq x\n```\n", "## A\n\n**Act.** x\n\n```console\nstray\n```\n", "## A\n\n**Act.** x\n\n```console\n$ onceq x\nexit x\n```\n"} {
		if ns, err := read(t, text); err == nil {
			t.Errorf("%q: %+v", text, ns)
		}
	}
}
