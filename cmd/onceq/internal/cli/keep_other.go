//go:build !unix

package cli

import "io/fs"

// Elsewhere the rights of a file are not in its mode, and links are rare.
const noFollow = 0

func isOwn(fs.FileInfo) bool { return true }

func isPrivate(fs.FileInfo) bool { return true }
