//go:build unix

package lambdaruntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This file owns one process of the function and the runtime API that it asks. Function calls
// start, invoke, signal and kill, and net/http calls ServeHTTP in goroutines of its own. s.mu
// guards the invocation under way, and whether the process was kept at its timeout. Channels say
// the rest: that it is ready, that it has work, that it ended.

const (
	apiPath   = "/2018-06-01/runtime/"
	initLimit = 10 * time.Second // Lambda's, for a function's start
)

// sandbox is one process of the function, and the runtime API that it talks to.
type sandbox struct {
	f      *Function
	server *http.Server
	cmd    *exec.Cmd
	pid    int

	ready  chan struct{} // closed when it has first asked for an invocation
	work   chan *invocation
	exited chan struct{} // closed when the process has ended
	why    error         // then
	used   bool          // it has answered before

	once   sync.Once
	mu     sync.Mutex
	now    *invocation
	zombie bool // its time is over, and it was kept
}

type invocation struct {
	id       string
	payload  []byte
	deadline time.Time
	answer   chan Result // one
}

// start starts a process. It is ended by kill.
func (f *Function) start() (*sandbox, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sandbox{f: f, ready: make(chan struct{}), work: make(chan *invocation), exited: make(chan struct{})}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: initLimit}
	go func() { _ = s.server.Serve(l) }()
	s.cmd = exec.CommandContext(context.Background(), f.o.Command[0], f.o.Command[1:]...)
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=" + f.o.Name, "AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=128", "AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/" + f.o.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME=" + l.Addr().String(), "_HANDLER=bootstrap", "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "LAMBDA_TASK_ROOT=/var/task",
	}, f.o.Env...)
	s.cmd.Stdout, s.cmd.Stderr = f.o.Output, f.o.Output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(s.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// The child's end may be tied to this thread's: it must last.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s.why = cmp.Or(s.cmd.Wait(), errors.New("exit status 0"))
		close(s.exited)
		_ = s.server.Close()
	}()
	if err := <-started; err != nil {
		_ = s.server.Close()
		return nil, err
	}
	s.pid = s.cmd.Process.Pid
	return s, nil
}

// ServeHTTP is the runtime API.
func (s *sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, _ := strings.CutPrefix(r.URL.Path, apiPath)
	parts := strings.Split(path, "/")
	switch {
	case r.Method == http.MethodGet && path == "invocation/next":
		s.next(w, r)
	case r.Method == http.MethodPost && len(parts) == 3 && parts[0] == "invocation" && (parts[2] == "response" || parts[2] == "error"):
		s.answered(w, r, parts[1], parts[2] == "error")
	case r.Method == http.MethodPost && path == "init/error":
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "lambdaruntime: not part of the runtime API: "+r.Method+" "+r.URL.Path, http.StatusNotFound)
	}
}

func (s *sandbox) next(w http.ResponseWriter, r *http.Request) {
	s.once.Do(func() { close(s.ready) })
	select {
	case in := <-s.work:
		in.deadline = time.Now().Add(s.f.o.Timeout)
		s.mu.Lock()
		s.now = in
		s.mu.Unlock()
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", in.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(in.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:"+s.f.o.Name)
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(in.payload)
	case <-r.Context().Done():
	}
}

// answered takes the answer to the invocation under way. Lambda takes none for another one.
func (s *sandbox) answered(w http.ResponseWriter, r *http.Request, id string, failed bool) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, payloadMost+1))
	if err != nil {
		return // killed in the middle
	}
	s.mu.Lock()
	if s.zombie {
		s.mu.Unlock()
		<-r.Context().Done() // nobody listens any more, and it may go on with the rest
		return
	}
	in := s.now
	if in == nil || in.id != id {
		s.mu.Unlock()
		http.Error(w, `{"errorType":"InvalidRequestID"}`, http.StatusBadRequest)
		return
	}
	s.now = nil
	s.mu.Unlock()
	res, status := Result{RequestID: id, Payload: payload}, http.StatusAccepted
	tooLarge := len(payload) > payloadMost
	if tooLarge {
		_, _ = io.Copy(io.Discard, r.Body)
		res.Payload, status = nil, http.StatusRequestEntityTooLarge
		res.Err = fmt.Errorf("%w: Function.ResponseSizeTooLarge: Response payload size exceeded maximum allowed payload size (%d bytes)", ErrFunction, payloadMost)
	}
	w.WriteHeader(status)
	_ = http.NewResponseController(w).Flush()
	if failed && !tooLarge {
		var e struct{ ErrorType, ErrorMessage string }
		_ = json.Unmarshal(payload, &e) // what is not JSON is an error all the same
		res.Err = fmt.Errorf("%w: %s: %s", ErrFunction, e.ErrorType, e.ErrorMessage)
	}
	s.signal(syscall.SIGSTOP)
	in.answer <- res
}

// invoke runs one invocation, and reports whether the sandbox may be used again.
func (s *sandbox) invoke(ctx context.Context, id string, payload []byte) (res Result, alive bool) {
	in := &invocation{id: id, payload: payload, answer: make(chan Result, 1)}
	fail := func(err error) (Result, bool) {
		s.kill()
		return Result{RequestID: id, Err: err}, false
	}
	s.signal(syscall.SIGCONT)
	start := time.NewTimer(initLimit)
	defer start.Stop()
	select {
	case <-s.ready:
	case <-s.exited:
		return fail(fmt.Errorf("%w at its start: %w", ErrExited, s.why))
	case <-start.C:
		return fail(fmt.Errorf("%w at its start", ErrTimeout))
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	select {
	case s.work <- in:
	case <-s.exited:
		if s.used {
			return fail(errEnded)
		}
		return fail(fmt.Errorf("%w: %w", ErrExited, s.why))
	case <-start.C:
		return fail(fmt.Errorf("%w: it does not ask for an invocation", ErrTimeout))
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	limit := time.NewTimer(s.f.o.Timeout)
	defer limit.Stop()
	select {
	case res = <-in.answer:
		return res, true
	case <-s.exited:
		return fail(fmt.Errorf("%w: %w", ErrExited, s.why))
	case <-limit.C:
		if s.f.o.KeepTimedOut {
			s.mu.Lock()
			s.zombie = true
			s.mu.Unlock()
			s.signal(syscall.SIGSTOP)
			return Result{RequestID: id, Err: ErrTimeout}, false
		}
		return fail(ErrTimeout)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}

// signal reaches the whole group: a function may have started others.
func (s *sandbox) signal(sig syscall.Signal) {
	select {
	case <-s.exited:
	default:
		_ = syscall.Kill(-s.pid, sig)
	}
}

func (s *sandbox) kill() {
	s.signal(syscall.SIGKILL)
	<-s.exited
}

// errEnded is a process that ended after its last answer, as one does that has panicked. The
// invocation has not reached it.
var errEnded = errors.New("lambdaruntime: the function's process ended before the invocation")

var (
	// ErrFunction is an error that the function answered with.
	ErrFunction = errors.New("lambdaruntime: the function failed")
	// ErrExited is a process that ended before it had answered.
	ErrExited = errors.New("lambdaruntime: the function's process ended")
	// ErrTooLarge is an event of more than 6 MB, which Lambda does not take. The function was not
	// run.
	ErrTooLarge = errors.New("lambdaruntime: the event is too large")
	// ErrTimeout is a function that was killed at its timeout.
	ErrTimeout = errors.New("lambdaruntime: the function timed out")
)
