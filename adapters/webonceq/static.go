package webonceq

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// This file owns the style and the script. Their address has their hash, so browsers may keep them
// for ever. They are the same for everybody, so nobody is asked who he is.

//go:embed static
var assets embed.FS

type asset struct {
	kind          string
	plain, zipped []byte
}

// loaded are the files, and the hash of all of them.
var loaded = sync.OnceValues(func() (map[string]asset, string) {
	all, sum := map[string]asset{}, sha256.New()
	for name, kind := range map[string]string{"page.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		plain, err := assets.ReadFile("static/" + name)
		if err != nil {
			panic(err) // invariant: it is embedded
		}
		if plain = lean(plain); kind == "text/css" {
			plain = tight.ReplaceAll(plain, []byte("$1$2"))
		}
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = z.Write(plain)
		_ = z.Close()
		all[name] = asset{kind + "; charset=utf-8", plain, b.Bytes()}
	}
	for _, name := range [...]string{"icon.svg", "live.js", "page.css"} {
		_, _ = sum.Write(all[name].plain)
	}
	return all, hex.EncodeToString(sum.Sum(nil))[:12]
})

// tight are the blanks around signs of a style sheet, which mean nothing there.
var tight = regexp.MustCompile(` *([{};,]) *|(:) `)

// lean is a file without what only its authors read: indents, empty lines, lines of comment. None
// of the files has a text of several lines.
func lean(file []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(file) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) && !(bytes.HasPrefix(line, []byte("/*")) && bytes.HasSuffix(line, []byte("*/"))) {
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func staticPath() string {
	_, hash := loaded()
	return "/static/" + hash + "/"
}

func static(w http.ResponseWriter, r *http.Request) {
	all, hash := loaded()
	a, ok := all[r.PathValue("name")]
	if !ok || r.PathValue("hash") != hash {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(a.zipped)
		return
	}
	_, _ = w.Write(a.plain)
}
