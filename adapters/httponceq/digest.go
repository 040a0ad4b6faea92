package httponceq

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
)

// digest tells one request from another under the same key. Handlers outside of the middleware may
// have changed the request, so the digest takes what the client sent as well as what they made of
// it.
func digest(r *http.Request, body []byte) ([]byte, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %q %q %x\n", r.Method, target(r), r.URL.RequestURI(), sha256.Sum256(body))
	form := r.PostForm.Encode()
	var parts multipart.Form
	if r.MultipartForm != nil {
		parts = *r.MultipartForm
	}
	values := url.Values(parts.Value).Encode()
	if len(body) == 0 && r.ContentLength > 0 && form == "" && values == "" && len(parts.File) == 0 {
		return nil, errors.New("another handler has read the body before")
	}
	fmt.Fprintf(h, "%q %q\n", form, values)
	for _, name := range slices.Sorted(maps.Keys(parts.File)) {
		for _, f := range parts.File[name] {
			sum, err := fileSum(f)
			if err != nil {
				return nil, fmt.Errorf("a file of the form cannot be read: %w", err)
			}
			fmt.Fprintf(h, "%q %q %q %x\n", name, f.Filename, f.Header.Get("Content-Type"), sum)
		}
	}
	return h.Sum(nil), nil
}

// target is the path and query that the client sent. http.StripPrefix and some routers change
// r.URL.
func target(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || u.Opaque != "" { // none, as outside of a server; or that of a CONNECT
		return r.URL.RequestURI()
	}
	return u.RequestURI()
}

func fileSum(f *multipart.FileHeader) (sum []byte, err error) {
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = io.Copy(h, in)
	return h.Sum(nil), cmp.Or(err, in.Close())
}
