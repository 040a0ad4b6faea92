//go:build unix

package localstack

import (
	"context"
	_ "embed" // what DynamoDB Local is made of
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

var (
	//go:embed lock/dynamodb-local-3.1.0.xml
	dynamoDBPom string
	//go:embed lock/dynamodb-local-3.1.0.sha256
	dynamoDBSums string
)

// dynamoDBLocal is what is run on this machine.
var dynamoDBLocal = jars{name: "dynamodb-local-" + dynamoDBVersionHere, pom: dynamoDBPom, sums: dynamoDBSums}

const (
	dynamoDBVersionHere = "3.1.0"
	// dynamoDBJava is the oldest that it runs on.
	dynamoDBJava = 17
)

// dynamoDBMain is what DynamoDB Local's own main class does for -inMemory, but for three things: it
// listens on the socket of the loopback address that it inherits as its standard input, it asks for
// no other, and it tells Amazon nothing.
const dynamoDBMain = `<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure id="Server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector"><Arg><New class="org.eclipse.jetty.server.ServerConnector">
    <Arg name="server"><Ref refid="Server"/></Arg>
    <Set name="inheritChannel">true</Set>
    <Set name="host">127.0.0.1</Set>
  </New></Arg></Call>
  <Set name="handler"><New class="software.amazon.dynamodb.services.local.server.LocalDynamoDBServerHandler">
    <Arg><New class="software.amazon.dynamodb.services.local.server.LocalDynamoDBRequestHandler">
      <Arg type="int">0</Arg><Arg type="boolean">true</Arg><Arg/><Arg type="boolean">false</Arg><Arg type="boolean">false</Arg>
    </New></Arg>
    <Arg/>
  </New></Set>
</Configure>
`

// startDynamoDB runs DynamoDB Local from jars of its own.
func startDynamoDB(ctx context.Context, s *site) (string, error) {
	j, err := findJava(ctx, dynamoDBJava)
	if err != nil {
		return "", err
	}
	url, err := s.serveCached(ctx, func(again bool) (string, bool, error) {
		return dynamoDBLocal.folder(ctx, s, j, again)
	}, func(dir string) (string, bool, error) {
		return s.serveDynamoDB(ctx, j, dir)
	})
	s.version = dynamoDBVersionHere
	return url, err
}

// serveDynamoDB starts the server and waits until it answers. It tells whether the server ended by
// itself.
func (s *site) serveDynamoDB(ctx context.Context, j java, dir string) (url string, ended bool, err error) {
	socket, addr, err := listen(ctx)
	if err != nil {
		return "", false, err
	}
	defer socket.Close()
	main := filepath.Join(s.dir, "dynamodb.xml")
	if err := os.WriteFile(main, []byte(dynamoDBMain), 0o600); err != nil {
		return "", false, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), j.path,
		// what starts in 2 s and does well with two processors that the tests need, too
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m",
		// all that it writes
		"-Djava.io.tmpdir="+s.dir, "-Duser.home="+s.dir, "-XX:-UsePerfData",
		"-cp", filepath.Join(dir, "*"), "org.eclipse.jetty.xml.XmlConfiguration", main)
	cmd.Dir, cmd.Stdin = s.dir, socket
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir, "TMPDIR=" + s.dir, "LC_ALL=C.UTF-8", "TZ=UTC", "DDB_LOCAL_TELEMETRY=0"}
	// it has nothing to save
	return s.serve(ctx, cmd, syscall.SIGKILL, func(ctx context.Context) (string, error) {
		_ = socket.Close() // a server that ends is to be seen
		return servingDynamoDB(ctx, []string{"http://" + addr}, 90*time.Second)
	})
}
