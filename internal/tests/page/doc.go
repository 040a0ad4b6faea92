// Package page looks at the operator's page as people do: in a browser, on a phone's width, with a
// finger, with scripts and without. It is all tests. Its queues are sqsfake's, its store is a file,
// its workers are real. What needs no browser is tested in adapters/webonceq itself.
//
//	go test ./internal/tests/page                                needs Chromium: see internal/chromium
//	make pictures                                                takes those of docs/page.md
//	go test ./internal/tests/page -v -run TestFigures -figures   measures what docs/page.md says
package page
