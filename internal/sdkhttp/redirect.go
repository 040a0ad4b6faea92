package sdkhttp

import (
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// A Doer sends HTTP requests; the clients of the SDK have one.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Unredirected is a client with the connections of c that hands a redirect back as the answer that
// it is, for the SDK to make an error of. It reports whether it could make one: it knows
// *http.Client and the SDK's own, and gives any other client back as it is. What it makes of the
// SDK's own has connections of its own.
//
// net/http follows a 307 or 308 of a request whose body it can have again. So whoever sets GetBody
// needs such a client. Else the body, and the token of a session, go to any host that an answer
// names. The SDK's own client even follows without a bound: a server that redirects to itself would
// get ten thousand requests a second.
func Unredirected(c Doer) (Doer, bool) {
	if b, ok := c.(*awshttp.BuildableClient); ok {
		c = b.Freeze()
	}
	h, ok := c.(*http.Client)
	if !ok {
		return c, false
	}
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, true
}
