package sqsfake

import (
	"context"
	"slices"
)

// action is one of the API's actions: what it takes, and what it does.
type action struct {
	params, required           paramSet
	entryParams, entryRequired paramSet
	run                        func(*call) *apiError
}

func (a *action) isBatch() bool { return a.entryParams != 0 }

// messageParams are what a sent message may have.
var messageParams = set(pBody, pDelay, pAttributes, pSystemAttributes, pDedupID, pGroupID)

// actions is the API. All but a few are about one queue and name it by QueueUrl.
var actions = map[string]*action{
	"AddPermission":         all(set(pQueueURL, pLabel, pAccounts, pActions), (*call).addPermission),
	"CancelMessageMoveTask": all(set(pTaskHandle), (*call).cancelMessageMoveTask),
	"ChangeMessageVisibility": all(set(pQueueURL, pReceiptHandle, pVisibility),
		(*call).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": batch(set(pReceiptHandle, pVisibility), set(pReceiptHandle, pVisibility),
		(*call).changeMessageVisibilityBatch),
	"CreateQueue":        some(set(pQueueName, pSettings, pTagsAtCreation), set(pQueueName), (*call).createQueue),
	"DeleteMessage":      all(set(pQueueURL, pReceiptHandle), (*call).deleteMessage),
	"DeleteMessageBatch": batch(set(pReceiptHandle), set(pReceiptHandle), (*call).deleteMessageBatch),
	"DeleteQueue":        all(set(pQueueURL), (*call).deleteQueue),
	"GetQueueAttributes": some(set(pQueueURL, pNames), set(pQueueURL), (*call).getQueueAttributes),
	"GetQueueUrl":        some(set(pQueueName, pOwner), set(pQueueName), (*call).getQueueURL),
	"ListDeadLetterSourceQueues": some(set(pQueueURL, pNextToken, pMaxResults), set(pQueueURL),
		(*call).listDeadLetterSourceQueues),
	"ListMessageMoveTasks": some(set(pSourceARN, pMaxResults), set(pSourceARN), (*call).listMessageMoveTasks),
	"ListQueueTags":        all(set(pQueueURL), (*call).listQueueTags),
	"ListQueues":           some(set(pPrefix, pNextToken, pMaxResults), 0, (*call).listQueues),
	"PurgeQueue":           all(set(pQueueURL), (*call).purgeQueue),
	"ReceiveMessage": some(
		set(pQueueURL, pNames, pSystemNames, pAttributeNames, pMax, pVisibility, pWait, pAttemptID),
		set(pQueueURL), (*call).receiveMessage),
	"RemovePermission":   all(set(pQueueURL, pLabel), (*call).removePermission),
	"SendMessage":        some(set(pQueueURL)|messageParams, set(pQueueURL, pBody), (*call).sendMessage),
	"SendMessageBatch":   batch(messageParams, set(pBody), (*call).sendMessageBatch),
	"SetQueueAttributes": all(set(pQueueURL, pSettings), (*call).setQueueAttributes),
	"StartMessageMoveTask": some(set(pSourceARN, pDestinationARN, pRate), set(pSourceARN),
		(*call).startMessageMoveTask),
	"TagQueue":   all(set(pQueueURL, pTags), (*call).tagQueue),
	"UntagQueue": all(set(pQueueURL, pTagKeys), (*call).untagQueue),
}

// all is an action that requires all its parameters, some one that requires some of them.
func all(params paramSet, run func(*call) *apiError) *action { return some(params, params, run) }

func some(params, required paramSet, run func(*call) *apiError) *action {
	return &action{params: params, required: required, run: run}
}

func batch(params, required paramSet, run func(*call) *apiError) *action {
	a := all(set(pQueueURL, pEntries), run)
	a.entryParams, a.entryRequired = params|set(pID), required
	return a
}

// call is one request on its way through the server.
type call struct {
	s        *Server
	ctx      context.Context //nolint:containedctx // of one request, as in http.Request
	base     string          // scheme and host, as the client sees the server
	trace    string          // the request's X-Amzn-Trace-Id
	in       input
	q        *queue
	settings *settings // q's, when the call began
	fault    *Fault
	out      writer
	brought  int // messages, of a receive
}

// eachEntry applies f to the entries of a batch, and writes the answer.
func (c *call) eachEntry(f func(*entry) *apiError) {
	results := make([]*apiError, len(c.in.entries))
	for i := range c.in.entries {
		if results[i] = c.fault.entry(i); results[i] != nil && !c.fault.Applied {
			continue
		}
		if err := f(&c.in.entries[i]); results[i] == nil {
			results[i] = err
		}
	}
	c.writeBatch(results, c.q.shuffle(len(results)), nil)
}

// writeBatch writes a batch's answer, in the order that places has; more adds to that of an entry
// that succeeded. A list without entries is left out.
func (c *call) writeBatch(results []*apiError, order places, more func(w *writer, i int)) {
	w := &c.out
	list := func(key string, listed func(*apiError) bool, write func(i int)) {
		if !slices.ContainsFunc(results, listed) {
			return
		}
		w.key(key)
		w.open('[')
		for _, i := range order[:len(results)] {
			if listed(results[i]) {
				w.open('{')
				w.field("Id", c.in.entries[i].id)
				write(int(i))
				w.close('}')
			}
		}
		w.close(']')
	}
	w.open('{')
	list("Successful", func(err *apiError) bool { return err == nil }, func(i int) {
		if more != nil {
			more(w, i)
		}
	})
	list("Failed", func(err *apiError) bool { return err != nil }, func(i int) {
		err := results[i]
		w.key("SenderFault")
		w.boolean(err.fault() == "Sender")
		w.field("Code", err.code)
		w.field("Message", err.message)
	})
	w.close('}')
}
