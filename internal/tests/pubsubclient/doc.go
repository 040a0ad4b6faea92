// Package pubsubclient tests Google's own high-level client of Pub/Sub, as publisher and as
// subscriber, against pubsubfake: the server is as strict as the service, and no stricter than that
// client can bear.
package pubsubclient
