// Package sdkhttp has what the HTTP clients of the AWS SDK need: requests that lose no answer, and
// enough connections.
package sdkhttp

import (
	"bytes"
	"io"
	"net/http"
)

// Sound is c for requests whose bodies are closed as soon as the answer's head is there, as the SDK
// does it. net/http may then still look whether the body has more than it said: a closed Read is an
// end, but the WriteTo of the SDK's body is an error, for which net/http closes the connection, and
// with it the rest of the answer is gone: ten messages that were received, or the word that a
// record was written. A body without a WriteTo ends well.
//
// No redirect is followed, see [Unredirected]. A client of which that cannot be said gets requests
// whose bodies it cannot send a second time.
func Sound(c Doer) Doer {
	own, ok := Unredirected(c)
	return &doer{Doer: own, again: ok}
}

// small is the size, in bytes, up to which a body goes out as net/http likes it best.
const small = 64 << 10

type doer struct {
	Doer
	again bool // net/http may send a body a second time
}

// Do sends r. Of a small body it makes one that net/http knows to be in memory: head and body then
// go out in one write, which saves a tenth of the processor's time for a receive and its ack.
func (d *doer) Do(r *http.Request) (*http.Response, error) {
	switch _, writes := r.Body.(io.WriterTo); {
	case !writes, r.Body == http.NoBody:
	case r.ContentLength > small, r.ContentLength <= 0: // none, or not known
		r.Body = &plain{r.Body}
	default:
		b := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, b); err != nil {
			return nil, err
		}
		body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
		if d.again {
			// On a connection that the server has closed meanwhile net/http begins anew, if nothing
			// was written and it has the body again.
			r.GetBody = body
		}
		r.Body, _ = body()
	}
	return d.Doer.Do(r)
}

// plain has no WriteTo.
type plain struct{ io.ReadCloser }
