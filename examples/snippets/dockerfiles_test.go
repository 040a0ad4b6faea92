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
