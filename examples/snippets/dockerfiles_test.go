package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Dockerfiles of the examples copy the go.mod and go.sum of each module that go.mod replaces by
// a folder, before they download: without one of them go mod download fails.
func TestDockerfiles(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	folders := []string{"examples"}
	for _, m := range regexp.MustCompile(`(?m)^replace \S+ => (\S+)$`).FindAllStringSubmatch(string(mod), -1) {
		folders = append(folders, filepath.Join("examples", m[1]))
	}
	require.Greater(t, len(folders), 4)
	files, err := filepath.Glob("../*/Dockerfile")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 2)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		before, _, found := strings.Cut(string(b), "mod download")
		require.True(t, found, file)
		for _, folder := range folders {
			to := folder + "/"
			if folder == "." {
				to, folder = "./", ""
			} else {
				folder += "/"
			}
			line := "COPY " + folder + "go.mod " + folder + "go.sum " + to
			require.Contains(t, before, "\n"+line+"\n", "%s lacks a module that examples/go.mod replaces", file)
			for _, name := range []string{"go.mod", "go.sum"} {
				require.FileExists(t, filepath.Join("../..", folder, name))
			}
		}
	}
}

// The page's Dockerfile for a module of the user's own builds with the Go that our go.mod asks for,
// is made of the instructions of the example's, and starts the worker without a shell.
func TestPageDockerfile(t *testing.T) {
	page, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "```dockerfile\n")
	require.True(t, found)
	file, _, found := strings.Cut(after, "```\n")
	require.True(t, found)

	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	require.NotNil(t, version)
	require.Contains(t, file, "FROM golang:"+string(version[1])+" AS build\n")

	before, _, found := strings.Cut(file, "RUN go mod download\n")
	require.True(t, found)
	require.Contains(t, before, "\nCOPY go.mod go.sum ./\n")
	build := strings.Index(file, "\nRUN CGO_ENABLED=0 go build -trimpath -o /worker .\n")
	require.Greater(t, build, strings.Index(file, "\nCOPY . .\n"))

	example, err := os.ReadFile("../container/Dockerfile")
	require.NoError(t, err)
	for _, line := range []string{"FROM golang:", "FROM gcr.io/", "WORKDIR", "COPY --from=build", "COPY . .", "ENTRYPOINT"} {
		at := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `.*$`)
		require.Equal(t, at.FindString(string(example)), at.FindString(file), line)
	}
	require.Contains(t, file, `ENTRYPOINT ["/worker"]`)
}
