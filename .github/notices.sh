#!/usr/bin/env bash
# Prints the licences and notices of what the command onceq is built from, one after the other. BSD,
# MIT and Apache ask that they go along with a binary. Whoever passes one on runs
#
#	.github/notices.sh > THIRD-PARTY-NOTICES
#
# with the build's own GOOS, GOARCH and -tags (GOFLAGS=-tags=nosqlite), because these decide which
# modules are compiled in. It asks the Go command, so that no list can be out of date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../cmd/onceq"
export GOWORK=off LC_ALL=C

# texts NAME FOLDER prints what the folder has of licences and notices.
texts() {
	local name=$1 folder=$2 file found=
	for file in "$folder"/{LICENSE,LICENCE,COPYING,NOTICE,PATENTS}*; do
		[[ -f $file ]] || continue
		found=yes
		printf '\n==== %s: %s\n\n' "$name" "${file##*/}"
		cat "$file"
	done
	if [[ -z $found ]]; then
		echo "$name has no licence in $folder" >&2
		return 1
	fi
}

modules=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' . | sort -u)
texts "Go $(go env GOVERSION)" "$(go env GOROOT)"
while read -r path version folder; do
	case $path in
	github.com/onceq/onceq/*) continue ;; # under the repository's own licence
	esac
	texts "$path $version" "$folder"
done <<<"$modules"
