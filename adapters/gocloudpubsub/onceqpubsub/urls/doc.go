// Package urls opens onceq's queues for gocloud.dev/pubsub by URL. Nothing is registered by itself:
// a program makes the openers that it wants and registers them with its own [pubsub.URLMux], or
// with [pubsub.DefaultURLMux].
//
//	mux := new(pubsub.URLMux)
//	(&urls.SQS{Client: client}).RegisterWith(mux)
//	orders, err := mux.OpenSubscription(ctx, "onceq+sqs://sqs.eu-west-1.amazonaws.com/123456789012/orders?visibility=1m")
//
// # URLs
//
//	onceq+sqs://HOST/ACCOUNT/NAME    the queue's own URL, for both; insecure=true for http
//	onceq+gcppubsub://projects/PROJECT/topics/NAME
//	onceq+gcppubsub://projects/PROJECT/subscriptions/NAME
//	onceq+mem://NAME                 a queue in memory, for both
//
// # Query parameters
//
// Of a subscription, each as the field of [onceqpubsub.SubscriptionOptions] of that name; times
// are those of [time.ParseDuration]:
//
//	visibility=30s  maxhold=1h  wait=1s  nackdelay=0s
//
// Of a topic and a subscription on SQS: gocloudsqs=true. A parameter goes before the opener's
// field. One that is unknown, comes twice, or has no value that fits, is an error that names it.
package urls
