// Package localstack finds or starts the real back ends that tests need.
package localstack
