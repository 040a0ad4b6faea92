package sqsfake

import "slices"

// This file owns the parameters of requests: their names, and how they are read and checked. handle
// calls parse, and run calls checkBatch. An input belongs to one call, so nothing is locked.
// reader.go reads the JSON, and actions.go says which action takes which parameters.

// param is a parameter of the API. Each request has a set of those that it gave, so that an
// absent one and a zero differ: VisibilityTimeout 0 ends a lease, none of it is an error.
type param uint8

const (
	pID param = iota
	pReceiptHandle
	pBody
	pDedupID
	pGroupID
	pDelay
	pVisibility
	pAttributes
	pSystemAttributes
	entryParams // the ones before are those of a batch's entry

	pQueueURL = entryParams + iota - 10
	pQueueName
	pPrefix
	pOwner
	pAttemptID
	pSourceARN
	pDestinationARN
	pTaskHandle
	pNextToken
	pLabel
	pMax
	pWait
	pRate
	pMaxResults
	pSettings
	pTagsAtCreation
	pTags
	pTagKeys
	pNames
	pSystemNames
	pAttributeNames
	pAccounts
	pActions
	pEntries
	allParams
)

var paramNames = [allParams]string{
	pID: "Id", pReceiptHandle: "ReceiptHandle", pBody: "MessageBody",
	pDedupID: "MessageDeduplicationId", pGroupID: "MessageGroupId", pDelay: "DelaySeconds",
	pVisibility: "VisibilityTimeout", pAttributes: "MessageAttributes",
	pSystemAttributes: "MessageSystemAttributes",
	pQueueURL:         "QueueUrl", pQueueName: "QueueName", pPrefix: "QueueNamePrefix",
	pOwner: "QueueOwnerAWSAccountId", pAttemptID: "ReceiveRequestAttemptId",
	pSourceARN: "SourceArn", pDestinationARN: "DestinationArn", pTaskHandle: "TaskHandle",
	pNextToken: "NextToken", pLabel: "Label", pMax: "MaxNumberOfMessages",
	pWait: "WaitTimeSeconds", pRate: "MaxNumberOfMessagesPerSecond", pMaxResults: "MaxResults",
	pSettings: "Attributes", pTagsAtCreation: "tags", pTags: "Tags", pTagKeys: "TagKeys",
	pNames: "AttributeNames", pSystemNames: "MessageSystemAttributeNames",
	pAttributeNames: "MessageAttributeNames", pAccounts: "AWSAccountIds", pActions: "Actions",
	pEntries: "Entries",
}

var paramsByName = func() map[string]param {
	m := make(map[string]param, allParams)
	for p, name := range paramNames {
		m[name] = param(p)
	}
	return m
}()

type paramSet uint64

func set(ps ...param) (s paramSet) {
	for _, p := range ps {
		s |= 1 << p
	}
	return s
}

func (s paramSet) has(p param) bool { return s&(1<<p) != 0 }

// first is the first parameter of a set that is not empty.
func (s paramSet) first() param {
	for p := range allParams {
		if s.has(p) {
			return p
		}
	}
	return allParams
}

// entry is what concerns one message: an entry of a batch, or a request without a batch.
type entry struct {
	given      paramSet
	id         string
	receipt    string
	body       string
	dedupID    string
	groupID    string
	delay      int64 // seconds
	visibility int64 // seconds
	attributes []attribute
	system     []attribute
	// spoiled is set by a fault: the receipt handle counts as that of an earlier receive.
	spoiled bool
}

func (e *entry) read(r *reader, p param) {
	e.given |= set(p)
	name := paramNames[p]
	switch p {
	case pID:
		e.id = r.text(name)
	case pReceiptHandle:
		e.receipt = r.text(name)
	case pBody:
		e.body = r.text(name)
	case pDedupID:
		e.dedupID = r.text(name)
	case pGroupID:
		e.groupID = r.text(name)
	case pDelay:
		e.delay = r.number(name)
	case pVisibility:
		e.visibility = r.number(name)
	case pAttributes:
		e.attributes = readAttributes(r, name)
	case pSystemAttributes:
		e.system = readAttributes(r, name)
	default: // a parameter of the request, which readOther reads
	}
}

// input is a request.
type input struct {
	entry
	queueURL, queueName, prefix, owner string
	attemptID, source, destination     string
	taskHandle, nextToken, label       string
	max, wait, rate, maxResults        int64
	settings, tags                     map[string]string
	tagKeys, names, attributeNames     []string
	accounts, actions                  []string
	entries                            []entry
	entryArray                         [10]entry // where entries begin: no allocation for a batch
}

// signature is what an action takes, and what it cannot do without.
type signature struct {
	params, required           paramSet
	entryParams, entryRequired paramSet // of a batch's entries
}

func (g *signature) isBatch() bool { return g.entryParams != 0 }

// parse reads the request of an action. Parameters that the action does not have are
// refused: AWS ignores most of them, and the typing error goes unnoticed until production.
func (in *input) parse(body []byte, g *signature, name string) *apiError {
	r := &reader{data: body}
	r.object("the request", func(key []byte) {
		p, ok := paramsByName[string(key)]
		if !ok || !g.params.has(p) {
			r.failf("%s has no parameter %q", name, key)
			return
		}
		in.given |= set(p)
		if p < entryParams {
			in.read(r, p)
			return
		}
		in.readOther(r, p, g, name)
	})
	r.end()
	if r.err != nil {
		return r.err
	}
	if lacks := g.required &^ in.given; lacks != 0 {
		return missing(paramNames[lacks.first()])
	}
	return nil
}

func (in *input) readOther(r *reader, p param, g *signature, action string) {
	name := paramNames[p]
	switch p {
	case pQueueURL:
		in.queueURL = r.text(name)
	case pQueueName:
		in.queueName = r.text(name)
	case pPrefix:
		in.prefix = r.text(name)
	case pOwner:
		in.owner = r.text(name)
	case pAttemptID:
		in.attemptID = r.text(name)
	case pSourceARN:
		in.source = r.text(name)
	case pDestinationARN:
		in.destination = r.text(name)
	case pTaskHandle:
		in.taskHandle = r.text(name)
	case pNextToken:
		in.nextToken = r.text(name)
	case pLabel:
		in.label = r.text(name)
	case pMax:
		in.max = r.number(name)
	case pWait:
		in.wait = r.number(name)
	case pRate:
		in.rate = r.number(name)
	case pMaxResults:
		in.maxResults = r.number(name)
	case pSettings:
		in.settings = r.dict(name)
	case pTagsAtCreation, pTags:
		in.tags = r.dict(name)
	case pTagKeys:
		in.tagKeys = r.list(name)
	case pNames, pSystemNames:
		in.names = append(in.names, r.list(name)...)
	case pAttributeNames:
		in.attributeNames = r.list(name)
	case pAccounts:
		in.accounts = r.list(name)
	case pActions:
		in.actions = r.list(name)
	case pEntries:
		in.readEntries(r, g, action)
	default: // a parameter of an entry, which entry.read reads
	}
}

func (in *input) readEntries(r *reader, g *signature, action string) {
	in.entries = in.entryArray[:0]
	r.array("Entries", func() {
		in.entries = append(in.entries, entry{})
		e := &in.entries[len(in.entries)-1]
		r.object("an entry of Entries", func(key []byte) {
			p, ok := paramsByName[string(key)]
			if !ok || !g.entryParams.has(p) {
				r.failf("an entry of %s has no parameter %q", action, key)
				return
			}
			e.read(r, p)
		})
	})
}

// maxEntries is the most that a batch may have.
const maxEntries = 10

// checkBatch checks what concerns a batch as a whole.
func (in *input) checkBatch(required paramSet) *apiError {
	n := len(in.entries)
	if n == 0 {
		return errBatchEmpty.withf("There should be at least one entry in the request.")
	}
	if n > maxEntries {
		return errBatchTooMany.withf("Maximum number of entries per request are %d. You have sent %d.", maxEntries, n)
	}
	for i := range in.entries {
		e := &in.entries[i]
		if !e.given.has(pID) {
			return missing("Id")
		}
		if !validEntryID(e.id) {
			return errBatchEntryID.withf("A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if slices.ContainsFunc(in.entries[:i], func(o entry) bool { return o.id == e.id }) {
			return errBatchIDsNotDistinct.withf("Id %s repeated.", e.id)
		}
		if lacks := required &^ e.given; lacks != 0 {
			return missing(paramNames[lacks.first()])
		}
	}
	return nil
}

func validEntryID(id string) bool {
	if id == "" || len(id) > 80 {
		return false
	}
	return !containsOther(id, "-_")
}
