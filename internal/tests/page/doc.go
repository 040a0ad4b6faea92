// Package page looks at the operator's page as people do: in a browser, on a phone's width, with a
// finger, with scripts and without. It is all tests. Its queues are sqsfake's, its store is a file,
// its workers are real. What needs no browser is tested in adapters/webonceq itself.
//
//	go test ./internal/tests/page                      needs Chromium: see internal/chromium
//	go test ./internal/tests/page -run Pictures -update    make pictures
//	go test ./internal/tests/page -run xxx -bench .        the figures of docs/page.md
package page
