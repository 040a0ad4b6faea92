package firestorefake_test

import (
	"context"
	_ "embed"
	"flag"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceq/onceq/dedupe/firestorestore/firestorefake"
	"github.com/onceq/onceq/internal/testserver/testgcp"
)

var record = flag.Bool("record", false, "write testdata/answers.txt as the emulator answers")

// answersText has the answers of Google's emulator 1.19.9 to the scripts.
//
//go:embed testdata/answers.txt
var answersText string

// differences are the answers that are not the emulator's, because the service's differ: "script:
// call" to what the fake says.
var differences = map[string]string{
	"limits: 501": "InvalidArgument",
	"limits: large[0]": `InvalidArgument: Document 'DB/documents/c/a' cannot be written because its size (N bytes) ` +
		`exceeds the maximum allowed size of N bytes. -`,
	"limits: no name": `InvalidArgument: Document name "x" is not of a document in DB.`,
	"limits: nowhere": `InvalidArgument: Document name "DB/documents/c" is not of a document in DB.`,
}

// recorded are the emulator's answers to a script.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(answersText, "== "+name+"\n")
	if !ok {
		t.Fatalf("no answers to %q: -record writes them", name)
	}
	rest, _, _ = strings.Cut(rest, "== ")
	return strings.Split(strings.TrimSuffix(rest, "\n"), "\n")
}

// TestAsTheEmulator: the fake answers each call as Google's emulator has answered it, but for the
// differences that are declared.
func TestAsTheEmulator(t *testing.T) {
	used, ran := map[string]bool{}, 0
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			ran++
			_, conn := firestorefake.Conn(t, nil)
			want := recorded(t, s.name)
			if s.name == "limits" { // the emulator fails a batch as a whole where one value is too long
				for i, line := range want {
					want[i] = strings.Replace(line, "large:", "large[0]:", 1)
				}
			}
			for i, line := range want {
				call, _, _ := strings.Cut(line, ": ")
				if d, ok := differences[s.name+": "+call]; ok {
					used[s.name+": "+call] = true
					want[i] = call + ": " + d
				}
			}
			same(t, play(t, conn, "p", s.play), want)
		})
	}
	for d := range differences {
		if ran == len(scripts) && !used[d] && !t.Failed() {
			t.Errorf("%s: nothing is compared with this difference", d)
		}
	}
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := at0(got, i), at0(want, i)
		if g != w {
			t.Errorf("answer %d is\n%s\nwant\n%s", i, g, w)
		}
	}
}

func at0(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// TestEmulator: the emulator that is here answers as the recorded one, so that the fake is held to
// what is true.
func TestEmulator(t *testing.T) {
	server := testgcp.NewFirestore(t)
	if server.Kind != "emulator" {
		t.Skip("the texts are the emulator's, and this is " + server.Version)
	}
	conn, err := grpc.NewClient("passthrough:///"+server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(owner{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var all strings.Builder
	for _, s := range scripts {
		got := play(t, conn, server.Project(t), s.play)
		all.WriteString("== " + s.name + "\n" + strings.Join(got, "\n") + "\n")
		if !*record {
			same(t, got, recorded(t, s.name))
		}
	}
	if *record {
		if err := os.WriteFile("testdata/answers.txt", []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// owner may do all in an emulator.
type owner struct{}

func (owner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}

func (owner) RequireTransportSecurity() bool { return false }
