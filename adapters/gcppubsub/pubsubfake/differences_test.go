package pubsubfake_test

import "github.com/onceq/onceq/internal/fakeserver/elsewhere"

// does is a difference that is always there.
var does = elsewhere.Does

// differences of the servers that we know. The behaviour of the same name says by what the service
// is known to do otherwise; it is always the server below that is wrong.
var differences = map[string]map[string]elsewhere.Difference{
	"emulator": {
		// 0.8.20
		"a topic that does not exist lists nothing":                        does("answers an empty list"),
		"the expiration has a day at least, or never comes":                does("knows no expiration"),
		"a subscription has defaults":                                      does("knows no expiration"),
		"the labels of a topic are changed":                                does("changes no labels"),
		"the ack deadline has 10 to 600 seconds":                           does("accepts every deadline"),
		"the longest extension has 600 seconds":                            does("accepts more"),
		"a filter chooses by attributes":                                   does("delivers all"),
		"a filter that cannot be read is refused":                          does("accepts every text"),
		"a filter has 256 bytes at most":                                   does("accepts more"),
		"a dead-letter policy has 5 to 100 attempts, 5 by default":         does("answers OutOfRange"),
		"a detached subscription has no messages and no pulls":             does("detaches nothing"),
		"a resource has a policy":                                          does("knows no policies"),
		"a seek back brings a key in its order":                            does("cannot seek with ordering keys"),
		"a seek to the future drops what comes until then":                 does("delivers what comes"),
		"a retry policy delays what was nacked, longer each time":          does("delays less"),
		"a retry policy delays what was not acked in time":                 does("delays less"),
		"a message has 100 attributes at most":                             does("accepts more"),
		"the key of an attribute has 256 bytes at most":                    does("accepts more"),
		"the key of an attribute is not empty":                             does("accepts it"),
		"the value of an attribute has 1,024 bytes at most":                does("accepts more"),
		"an ordering key has 1,024 bytes at most":                          does("accepts more"),
		"10 MB are the most of a publish":                                  does("accepts more"),
		"the messages of a publish have one ordering key":                  does("accepts many keys"),
		"a call takes 1,000 ack ids":                                       does("takes more"),
		"a call takes 512 KiB of ack ids":                                  does("reads the ids first"),
		"a pull answers with nothing a little before its deadline":         {Does: "answers 0.9 s before it, which a busy machine uses up", Sometimes: true},
		"a pull asks for a message at least":                               does("waits, and brings nothing"),
		"a pull ends with its subscription":                                does("lets it wait to its end"),
		"a dead letter's key goes on":                                      does("does not answer the pull that buries the message"),
		"with the first of two nacked messages, all later ones come again": does("brings those alone that were nacked"),
		"with a nacked message, later ones that were acked come again":     does("brings those alone that were acked before the nack"),
		"a late extension succeeds and hides nothing":                      does("hides the message again"),
		"exactly-once: what is no ack id fails by id":                      does("names no id"),
		"exactly-once: a late extension fails":                             does("takes an id until the next delivery"),
		"exactly-once: a late ack fails":                                   does("takes an id until the next delivery"),
	},
}
