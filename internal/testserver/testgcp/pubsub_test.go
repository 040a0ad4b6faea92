package testgcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// server is a server without TLS that speaks HTTP/2, as gRPC does.
func server(t *testing.T, handle http.HandlerFunc) (addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// frame is a message as gRPC sends it.
func frame(message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + message
}

// first is a message whose first field is the text.
func first(text string) string {
	return string(append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(text))), text...))
}

// answer answers a call, with the status behind the message.
func answer(w http.ResponseWriter, message, status, text string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	_, _ = io.WriteString(w, message)
	w.Header().Set("Grpc-Status", status)
	w.Header().Set("Grpc-Message", text)
}

func TestPubSubVersion(t *testing.T) {
	for _, c := range []struct {
		name, message, status, text, root string
		want, why                         string
	}{
		{name: "Google's emulator", message: frame(""), status: "0", root: "Ok\n", want: "Pub/Sub emulator"},
		{name: "another", message: frame(""), status: "0", root: "hello", want: "Pub/Sub"},
		{name: "not allowed", status: "7", text: "not%20for you", why: "google.pubsub.v1.Publisher/ListTopics: gRPC status 7: not for you"},
		{name: "no gRPC", message: "<html>", why: "no gRPC status in the answer 200 OK"},
		{name: "torn", message: frame("1234")[:7], status: "0", why: "the answer is not one plain message"},
	} {
		addr := server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, c.root)
				return
			}
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/google.pubsub.v1.Publisher/ListTopics" || string(body) != frame(first("projects/onceq-start")) || r.ProtoMajor != 2 {
				t.Errorf("%s: %s %s, %q", c.name, r.Proto, r.URL, body)
			}
			answer(w, c.message, c.status, c.text)
		})
		got, err := pubSubVersion(t.Context(), addr, "")
		if got != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.why)
		}
	}
	for _, addr := range []string{"", "localhost", "http://127.0.0.1:8085", "127.0.0.1:8085/x"} {
		if got, err := pubSubVersion(t.Context(), addr, ""); err == nil || !strings.Contains(err.Error(), "not of the form host:port") {
			t.Errorf("%q: %q, %v", addr, got, err)
		}
	}
}

// TestPubSubVersionEndsWithItsContext: a server that takes the call and says nothing holds nobody.
func TestPubSubVersionEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	addr := server(t, func(http.ResponseWriter, *http.Request) { <-hold })
	defer close(hold)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := pubSubVersion(ctx, addr, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEmpty: all pages go, subscriptions first, and what somebody else has deleted is no error.
func TestEmpty(t *testing.T) {
	left := map[string][]string{"Subscriptions": {"s1", "s2", "s3"}, "Topics": {"t1"}}
	var deleted []string
	addr := server(t, func(w http.ResponseWriter, r *http.Request) {
		method := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if what, ok := strings.CutPrefix(method, "List"); ok {
			var page strings.Builder
			for _, name := range left[what][:min(2, len(left[what]))] {
				// fields that are not wanted: a number, and strings
				page.WriteString(first(first(name) + "\x10\x96\x01" + "\x1a\x01x"))
			}
			answer(w, frame(page.String()+"\x12\x04next"), "0", "")
			return
		}
		body, _ := io.ReadAll(r.Body)
		what := strings.TrimPrefix(method, "Delete") + "s"
		left[what] = left[what][1:]
		deleted = append(deleted, string(body[7:]))
		if len(deleted) == 2 {
			answer(w, "", "5", "gone")
			return
		}
		answer(w, frame(""), "0", "")
	})
	if err := empty(t.Context(), addr, "projects/p"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"s1", "s2", "s3", "t1"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted %q, want %q", deleted, want)
	}
	addr = server(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "Delete") {
			answer(w, "", "7", "no")
			return
		}
		answer(w, frame(first(first("s1"))), "0", "")
	})
	if err := empty(t.Context(), addr, "projects/p"); err == nil || !strings.Contains(err.Error(), "status 7: no") {
		t.Errorf("what cannot be deleted: %v", err)
	}
}

func TestFields(t *testing.T) {
	whole := first(first("a")) + first(first("b"))
	if names, err := firstFields([]byte(whole)); !slices.Equal(names, []string{"a", "b"}) || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	for name, message := range map[string]string{
		"no tag": "\xff", "no length": "\x0a", "too long": "\x0a\x05abc", "no number": "\x08\xff", "short number": "\x0d\x01", "a group": "\x0b",
		"torn inside": first("\x0a\x05abc"),
	} {
		if names, err := firstFields([]byte(message)); !errors.Is(err, errTorn) {
			t.Errorf("%s: %q, %v", name, names, err)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte(first(first("a")) + "\x0d1234\x0912345678"))
	f.Fuzz(func(_ *testing.T, message []byte) { _, _ = firstFields(message) })
}

func TestProjectID(t *testing.T) {
	form := regexp.MustCompile(`^onceq-[a-z0-9]{10}(-[a-z0-9-]*[a-z0-9])?$`)
	seen := map[string]bool{}
	for _, test := range []string{"TestX", "TestX", "Test/ÄÖÜ_and more than there is room for", "", "---"} {
		id := projectID(test)
		if !form.MatchString(id) || len(id) > longestProject || seen[id] {
			t.Errorf("%q: %q", test, id)
		}
		seen[id] = true
	}
}

// TestPubSub: where there is a server, a test has a project of its own there, which is empty
// afterwards.
func TestPubSub(t *testing.T) {
	s := NewPubSub(t)
	if s.Kind == "" || !strings.HasPrefix(s.Version, "Pub/Sub") {
		t.Errorf("%+v", s)
	}
	var project string
	list := func() []string {
		page, err := call(t.Context(), s.Addr, "google.pubsub.v1.Publisher/ListTopics", "projects/"+project)
		if err != nil {
			t.Fatal(err)
		}
		names, err := firstFields(page)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	t.Run("a test", func(t *testing.T) {
		project = s.Project(t)
		for i := range 3 {
			name := fmt.Sprintf("projects/%s/topics/topic%d", project, i)
			if _, err := call(t.Context(), s.Addr, "google.pubsub.v1.Publisher/CreateTopic", name); err != nil {
				t.Fatal(err)
			}
		}
		if names := list(); len(names) != 3 {
			t.Errorf("it has %q", names)
		}
	})
	if names := list(); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}
