// Package plainbody sends the AWS SDK's requests so that no answer is lost which came before its request had ended.
package plainbody

import (
	"io"
	"net/http"
)

// A Doer sends HTTP requests; the clients of the SDK have one.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Of is c for requests whose bodies are closed as soon as the answer's head is there, as the SDK does it. net/http may then
// still look whether the body has more than it said: a closed Read is an end, but the WriteTo of the SDK's body is an error, for which
// net/http closes the connection, and with it the rest of the answer is gone: ten messages that were received, or the word that
// a record was written. A body without a WriteTo ends well.
func Of(c Doer) Doer { return &doer{c} }

type doer struct{ Doer }

// Do sends r.
func (d *doer) Do(r *http.Request) (*http.Response, error) {
	if _, writes := r.Body.(io.WriterTo); writes && r.Body != http.NoBody {
		r.Body = &plain{r.Body}
	}
	return d.Doer.Do(r)
}

// plain has no WriteTo.
type plain struct{ io.ReadCloser }
