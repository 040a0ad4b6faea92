package sqsfake

import (
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// This file owns the server's queues: their names, and the actions that make, find, list, empty,
// tag and delete them. The actions run in the goroutine of a request. Each takes the server's lock,
// which guards the map of queues and their tags. queue.go has what is in a queue.

const (
	// purgePause is how long AWS wants between two purges of a queue, and recreatePause
	// between deleting a queue and creating one of the same name.
	purgePause    = 60 * time.Second
	recreatePause = 60 * time.Second
	maxPage       = 1000
	maxTags       = 50
)

// nameFromURL takes a queue's name out of its URL. The host is not looked at: a queue has
// many, seen from inside and outside of a container.
func (a *account) nameFromURL(queueURL string) (string, *apiError) {
	u, err := url.Parse(queueURL)
	if checkName(queueURL, strings.HasSuffix(queueURL, ".fifo")) == nil {
		return queueURL, nil // a bare name: LocalStack's recordings of AWS
	}
	if err != nil || u.Scheme == "" {
		return "", errAddress.withf("The address %s is not valid for this endpoint: a queue URL ends in /%s/NAME.", queueURL, a.o.Account)
	}
	owner, name, ok := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", errAddress.withf("The address %s is not valid for this endpoint: a queue URL ends in /%s/NAME.", queueURL, a.o.Account)
	}
	if owner != a.o.Account {
		return "", noQueue()
	}
	return name, nil
}

func noQueue() *apiError { return errNoQueue.withf("The specified queue does not exist.") }

// lookUp finds the queue that a call is about.
func (c *call) lookUp(name string) *apiError {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.q = c.a.queues[name]; c.q == nil {
		return noQueue()
	}
	c.settings = c.q.settings
	return nil
}

const (
	badName     = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
	badFIFOName = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length"
)

func checkName(name string, fifo bool) *apiError {
	bare, isFIFO := strings.CutSuffix(name, ".fifo")
	if !fifo {
		bare = name
	}
	switch ok := bare != "" && len(name) <= 80 && !containsOther(bare, "-_"); {
	case fifo && (!ok || !isFIFO):
		return errParameter.withf(badFIFOName)
	case !ok:
		return errParameter.withf(badName)
	}
	return nil
}

// create makes a queue, or finds the one that is there with the same attributes.
func (a *account) create(name string, given, tags map[string]string) *apiError {
	fifo := strings.EqualFold(given["FifoQueue"], "true")
	if err := checkName(name, fifo); err != nil {
		return err
	}
	if err := checkTags(tags); err != nil {
		return err
	}
	set, err := (&settings{values: defaults(fifo)}).change(given, fifo)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.queues[name]; q != nil {
		for _, k := range slices.Sorted(maps.Keys(given)) {
			if q.settings.values[k] != set.values[k] {
				return errQueueExists.withf("A queue already exists with the same name and a different value for attribute %s", k)
			}
		}
		return nil
	}
	if at, ok := a.deletions[name]; ok && !a.o.RecreateAtOnce && time.Since(at) < recreatePause {
		return errDeletedRecently.withf("You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	if err := a.checkTarget(set.redrive, given["RedrivePolicy"], a.arn(name), fifo); err != nil {
		return err
	}
	delete(a.deletions, name)
	q := newQueue(a, name, fifo, set)
	maps.Copy(q.tags, tags)
	a.queues[name] = q
	return nil
}

func (c *call) createQueue() *apiError {
	if err := c.a.create(c.in.queueName, c.in.settings, c.in.tags); err != nil {
		return err
	}
	c.writeURL(c.in.queueName)
	return nil
}

func (c *call) writeURL(name string) {
	c.out.open('{')
	c.out.field("QueueUrl", c.queueURL(name))
	c.out.close('}')
}

func (c *call) queueURL(name string) string { return c.base + "/" + c.a.o.Account + "/" + name }

func (c *call) getQueueURL() *apiError {
	if c.in.owner != "" && c.in.owner != c.a.o.Account {
		return noQueue()
	}
	if err := c.lookUp(c.in.queueName); err != nil {
		return err
	}
	c.writeURL(c.in.queueName)
	return nil
}

func (c *call) deleteQueue() *apiError {
	q := c.q
	now := q.lock()
	defer q.unlock(now)
	if q.deleted {
		return noQueue()
	}
	q.deleted = true
	for w := q.waiters.First(); w != nil; w = q.waiters.First() {
		q.answer(w, nil, noQueue())
	}
	q.stop()
	q.clear()
	delete(q.a.queues, q.name)
	q.a.deletions[q.name] = time.Now()
	return nil
}

func (c *call) purgeQueue() *apiError {
	q := c.q
	now := q.lock()
	defer q.unlock(now)
	if !q.purged.IsZero() && time.Since(q.purged) < purgePause {
		return errPurging.withf("Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = time.Now()
	q.clear()
	return nil
}

func (c *call) listQueues() *apiError {
	c.a.mu.Lock()
	names := c.a.sortedNames(c.in.prefix)
	c.a.mu.Unlock()
	return c.writePage(listed, names)
}

// listed are the queues of ListQueues, a member that AWS leaves out when it is empty. That of
// ListDeadLetterSourceQueues is there always.
const listed = "QueueUrls"

// writePage writes the URLs of a list of queues, in pages where the request has MaxResults.
func (c *call) writePage(key string, names []string) *apiError {
	limit, paged := maxPage, c.in.given.has(pMaxResults)
	if paged {
		if c.in.maxResults < 1 || c.in.maxResults > maxPage {
			return badValue("MaxResults", c.in.maxResults, "MaxResults must be an integer between 1 and 1000.")
		}
		limit = int(c.in.maxResults)
	}
	if c.in.given.has(pNextToken) {
		last, err := base64.StdEncoding.DecodeString(c.in.nextToken)
		if err != nil || !paged {
			return badValue("NextToken", c.in.nextToken, "Invalid or expired next token; it goes with MaxResults.")
		}
		i, found := slices.BinarySearch(names, string(last))
		if found {
			i++
		}
		names = names[i:]
	}
	more := len(names) > limit
	names = names[:min(limit, len(names))]
	urls := make([]string, len(names))
	for i, name := range names {
		urls[i] = c.queueURL(name)
	}
	w := &c.out
	w.open('{')
	if more && paged {
		w.field("NextToken", base64.StdEncoding.EncodeToString([]byte(names[len(names)-1])))
	}
	if len(urls) > 0 || key != listed {
		w.texts(key, urls)
	}
	w.close('}')
	return nil
}

func checkTags(tags map[string]string) *apiError {
	if len(tags) > maxTags {
		return errParameter.withf("Too many tags: a queue has at most %d.", maxTags)
	}
	for k, v := range tags {
		if k == "" || len(k) > 128 || len(v) > 256 {
			return errParameter.withf("The tag key %q or its value is too long, or the key is empty.", k)
		}
	}
	return nil
}

func (c *call) tagQueue() *apiError {
	if err := checkTags(c.in.tags); err != nil {
		return err
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	all := maps.Clone(c.q.tags)
	maps.Copy(all, c.in.tags)
	if err := checkTags(all); err != nil {
		return err
	}
	c.q.tags = all
	return nil
}

func (c *call) untagQueue() *apiError {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for _, k := range c.in.tagKeys {
		delete(c.q.tags, k)
	}
	return nil
}

func (c *call) listQueueTags() *apiError {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	w := &c.out
	w.open('{')
	w.dict("Tags", c.q.tags)
	w.close('}')
	return nil
}

func (c *call) listDeadLetterSourceQueues() *apiError {
	c.a.mu.Lock()
	sources := c.a.sourcesOf(c.q)
	c.a.mu.Unlock()
	names := make([]string, len(sources))
	for i, q := range sources {
		names[i] = q.name
	}
	return c.writePage("queueUrls", names)
}
