// Package promrules tests the rules and the dashboard that adapters/otelonceq ships, with
// Prometheus's own parser and engine. Its tests are all that it has. make check runs them.
//
// The tests of the alerts are in the format of promtool, so that they run by it, too:
//
//	promtool test rules adapters/otelonceq/testdata/rules_test.yaml
package promrules
