//go:build unix

package localstack

import (
	"context"
	_ "embed" // the lock files
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/onceq/onceq/internal/testserver/testaws"
)

// The lock files. A release later than 4.14.0 wants an account.
var (
	//go:embed lock/localstack-4.14.0.txt
	lock4140 string
	//go:embed lock/localstack-4.13.1.txt
	lock4131 string
)

// localStacks are what can run on this machine, best first. LocalStack 4.14.0 says that it runs on
// Python 3.10, and does so on 3.13 only: its sqs imports warnings.deprecated.
var localStacks = []requirements{
	{name: "localstack-4.14.0", python: 313, lock: &lock4140},
	{name: "localstack-4.13.1", python: 310, lock: &lock4131},
}

// localStackMain starts LocalStack on the socket of the loopback address that it inherits: whatever
// GATEWAY_LISTEN says, its server would listen on all IPv4 addresses.
const localStackMain = `
import socket
from twisted.internet import endpoints
def inherited(reactor, port, *args, **kwargs):
    return endpoints.AdoptedStreamServerEndpoint(reactor, 3, socket.AF_INET)
endpoints.TCP4ServerEndpoint = inherited
from localstack.runtime.main import main
main()
`

// startLocalStack runs LocalStack from a virtual environment of its own.
func startLocalStack(ctx context.Context, s *site) (string, error) {
	p, what, err := findPython(ctx, localStacks)
	if err != nil {
		return "", err
	}
	return s.serveCached(ctx, func(again bool) (string, bool, error) {
		return s.virtualEnv(ctx, p, what, again)
	}, func(env string) (string, bool, error) {
		return s.serveLocalStack(ctx, env)
	})
}

// serveLocalStack starts the server and waits until it answers. It tells whether the server ended
// by itself.
func (s *site) serveLocalStack(ctx context.Context, env string) (url string, ended bool, err error) {
	socket, addr, err := listen(ctx)
	if err != nil {
		return "", false, err
	}
	defer socket.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), env+"/bin/python", "-I", "-c", localStackMain)
	cmd.Dir, cmd.ExtraFiles = s.dir, []*os.File{socket}
	cmd.Env = []string{
		"PATH=" + env + "/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC",
		// all that it writes
		"HOME=" + s.dir, "TMPDIR=" + s.dir, "FILESYSTEM_ROOT=" + s.dir,
		// In a container it would take itself for its own image: it would write to /usr/lib and
		// /var/lib, and where it may not, answer each question for its health with an error.
		"OVERRIDE_IN_DOCKER=0",
		"GATEWAY_LISTEN=" + addr, "LOCALSTACK_HOST=" + addr,
	}
	for name, value := range localStackSettings() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	// it has nothing to save
	return s.serve(ctx, cmd, syscall.SIGKILL, func(ctx context.Context) (string, error) {
		_ = socket.Close() // a server that ends is to be seen
		return serving(ctx, []string{"http://" + addr}, testaws.LocalStackName, 90*time.Second)
	})
}
