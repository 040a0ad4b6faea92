package sqsfake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/fakeserver"
)

// This file owns the way of a request from its bytes to its answer, by HTTP or by Client. net/http,
// or the caller of Client, runs it in a goroutine for each request. A call belongs to that
// goroutine, so nothing is locked here; the actions take the server's lock.

const (
	contentType = "application/x-amz-json-1.0"
	target      = "AmazonSQS."
	// maxBody bounds a request: the messages of a batch, all their characters escaped.
	maxBody = 8 << 20
	// noAnswer stands in the log for a code where the caller got none.
	noAnswer = "(no answer)"
)

// reply is what a call comes to.
type reply struct {
	outcome outcome
	status  int
	header  http.Header
	body    []byte
}

// handle does a request, from its bytes to its answer.
func (s *Server) handle(ctx context.Context, r *http.Request, base string, body []byte) reply {
	name, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), target)
	a := actions[name]
	if !ok || a == nil {
		s.log.Begin("")
		return s.unknown(r, name)
	}
	// The header becomes the system attribute where a message has none (LocalStack's recordings of
	// AWS).
	c := &call{a: s.a, ctx: ctx, base: base, trace: r.Header.Get("X-Amzn-Trace-Id"), fault: &noFault}
	req := Request{Action: name, At: time.Now()}
	s.log.Begin(name)
	defer func() {
		req.Took = time.Since(req.At)
		s.log.End(req)
	}()
	err := c.in.parse(body, &a.signature, name)
	queueName := c.in.queueName
	if err == nil && c.in.given.has(pQueueURL) {
		queueName, err = s.a.nameFromURL(c.in.queueURL)
	}
	req.Queue, req.Entries = queueName, c.countEntries(a)
	f := s.pick(&req)
	c.fault, req.Faulty = f, f != &noFault
	if !fakeserver.Pause(ctx, f.Delay, s.a.closing) {
		req.Code = noAnswer
		return reply{outcome: silent}
	}
	if !f.whole() || f.Applied {
		err = c.run(a, queueName, err)
		req.Messages = c.brought
		if !fakeserver.Pause(ctx, f.ReplyDelay, s.a.closing) {
			req.Code = noAnswer
			return reply{outcome: silent}
		}
	}
	if f.whole() {
		err = injected(f.Code, f.Message, f.Status)
		if f.outcome() != answered {
			req.Code = noAnswer
			return reply{outcome: f.outcome()}
		}
	}
	if err != nil {
		req.Code = err.code
		return failure(err)
	}
	return success(c.out.b)
}

func (c *call) countEntries(a *action) int {
	switch {
	case a.isBatch():
		return len(c.in.entries)
	case c.in.given.has(pReceiptHandle), c.in.given.has(pBody):
		return 1
	default:
		return 0
	}
}

// run does the action; err is what was wrong with the request already.
func (c *call) run(a *action, queueName string, err *apiError) *apiError {
	if err != nil {
		return err
	}
	if a.params.has(pQueueURL) {
		if err := c.lookUp(queueName); err != nil {
			return err
		}
	}
	if a.isBatch() {
		if err := c.in.checkBatch(a.entryRequired); err != nil {
			return err
		}
	}
	if c.fault.Stale {
		c.in.spoiled = true
		for i := range c.in.entries {
			c.in.entries[i].spoiled = true
		}
	}
	c.out.b = make([]byte, 0, 512)
	return a.run(c)
}

// success is an answer. That of an action without output has no body at all, not even {}.
// gocloud.dev has recorded this on AWS for DeleteQueue and SetQueueAttributes, and the protocol
// says it of all.
func success(body []byte) reply {
	return reply{status: http.StatusOK, header: headers(), body: body}
}

func failure(err *apiError) reply {
	var w writer
	w.open('{')
	w.field("__type", err.typeName())
	w.field("message", err.message)
	w.close('}')
	h := headers()
	h["X-Amzn-Query-Error"] = []string{err.code + ";" + err.fault()}
	return reply{status: err.status, header: h, body: w.b}
}

func headers() http.Header {
	return http.Header{"Content-Type": {contentType}, "X-Amzn-Requestid": {newUUID()}}
}

// unknown answers a request that names none of our actions: in XML if it is of the old
// Query protocol, which this server does not speak.
func (s *Server) unknown(r *http.Request, name string) reply {
	if r.Header.Get("X-Amz-Target") != "" {
		return failure(errOperation.withf("The action %q is not valid for this endpoint. Those that are: %s.", name,
			strings.Join(slices.Sorted(maps.Keys(actions)), ", ")))
	}
	const text = "this server speaks the AWS JSON 1.0 protocol: POST with an X-Amz-Target header, as SDKs since 2023 do"
	body := `<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error><Type>Sender</Type>` +
		`<Code>UnsupportedProtocol</Code><Message>` + text + `</Message><Detail/></Error><RequestId>` + newUUID() + `</RequestId></ErrorResponse>`
	return reply{status: http.StatusBadRequest, header: http.Header{"Content-Type": {"text/xml"}}, body: []byte(body)}
}

// ServeHTTP serves the API, and under /_sqsfake/ what [the package comment] says.
//
// [the package comment]: https://pkg.go.dev/github.com/onceq/onceq/sqsfake
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, fakeserver.ControlPath("sqsfake")) {
		s.control.ServeHTTP(w, r)
		return
	}
	body, err := readBody(r)
	if err != nil {
		http.Error(w, fmt.Sprintf("sqsfake: reading the request: %v", err), http.StatusBadRequest)
		return
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	re := s.handle(r.Context(), r, scheme+r.Host, body)
	switch re.outcome {
	case silent:
		s.wait(r.Context())
		hangUp(w)
	case reset:
		hangUp(w)
	case answered:
		maps.Copy(w.Header(), re.header)
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(re.body))}
		w.WriteHeader(re.status)
		_, _ = w.Write(re.body)
	}
}

// wait waits until the caller gives up or the server is closed.
func (s *Server) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.a.closing:
	}
}

// hangUp resets the connection: the caller sees "connection reset by peer", or an end of
// file where the connection cannot be taken over.
func hangUp(w http.ResponseWriter) {
	h, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler) // net/http's own way to end a connection
	}
	conn, _, err := h.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer func() { _ = r.Body.Close() }()
	if n := r.ContentLength; n >= 0 && n <= maxBody {
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		if err == nil {
			// The end has to be read too: from then on net/http watches the connection, and
			// tells when the caller goes away.
			_, _ = r.Body.Read(make([]byte, 1))
		}
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("it is larger than %d bytes", maxBody)
	}
	return body, err
}

// Client is an HTTP client that reaches the server without a socket, in the goroutine of
// its caller: it works in a bubble of testing/synctest, where nothing waits for a network.
// Hand it to an SDK with URL as the endpoint. It answers whatever host it is asked for.
func (s *Server) Client() *http.Client { return &http.Client{Transport: direct{s}} }

type direct struct{ s *Server }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	re := d.s.handle(r.Context(), r, r.URL.Scheme+"://"+r.URL.Host, body)
	if re.outcome == silent {
		d.s.wait(r.Context())
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if re.outcome != answered {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	re.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return &http.Response{
		Status: strconv.Itoa(re.status) + " " + http.StatusText(re.status), StatusCode: re.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: re.header,
		Body: io.NopCloser(bytes.NewReader(re.body)), ContentLength: int64(len(re.body)), Request: r,
	}, nil
}
