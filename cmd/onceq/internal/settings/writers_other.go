//go:build !unix

package settings

import "io/fs"

// writers is always empty where a file's mode does not say who may write it.
func writers(fs.FileInfo) string { return "" }
