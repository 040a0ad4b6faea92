package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// serveAs in the environment makes of the test binary a server: what the server uses of the
// processor must not be counted as the client's. Its value is "sqs", or "pubsub" and a round trip's
// time.
const serveAs = "ONCEQ_BENCH_SERVE"

func TestMain(m *testing.M) {
	if as := os.Getenv(serveAs); as != "" {
		if err := serve(as); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve writes its address and serves until its parent is gone.
func serve(as string) error {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
	}()
	name, trip, _ := strings.Cut(as, " ")
	if name == "sqs" {
		return serveSQS(ln, gone)
	}
	d, err := time.ParseDuration(trip)
	if err != nil {
		return err
	}
	return servePubSub(ln, d, gone)
}

func serveSQS(ln net.Listener, gone <-chan struct{}) error {
	addr := "http://" + ln.Addr().String()
	if _, err := fmt.Println(addr); err != nil {
		return err
	}
	h := &http.Server{Handler: newPlainSQS(addr, latency), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-gone
		h.Close()
	}()
	_ = h.Serve(ln)
	return nil
}

// start starts a server in a process of its own and answers its address.
func start(tb testing.TB, as string) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), serveAs+"="+as), os.Stderr
	alive, err := cmd.StdinPipe() // ends with this process, however it ends
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		alive.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the server ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// requestsOf is how many requests of the receiving side the server has had: receives, deletes,
// changes of visibility.
func requestsOf(tb testing.TB, addr string) int64 {
	tb.Helper()
	r, err := http.Get(addr + countsPath)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Body.Close()
	var counts map[string]int64
	if err := json.NewDecoder(r.Body).Decode(&counts); err != nil {
		tb.Fatal(err)
	}
	n := int64(0)
	for action, k := range counts {
		if strings.HasPrefix(action, "Receive") || strings.HasPrefix(action, "Delete") || strings.HasPrefix(action, "Change") {
			n += k
		}
	}
	return n
}
