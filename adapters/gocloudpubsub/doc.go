// Package gocloudpubsub joins onceq and gocloud.dev/pubsub, both ways.
package gocloudpubsub
