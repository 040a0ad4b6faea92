package sqsfake

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// computed are the attributes that can only be asked for.
var computed = []string{
	"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed",
	"ApproximateNumberOfMessagesNotVisible", "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn",
}

func (c *call) getQueueAttributes() *apiError {
	q := c.q
	now := q.lock()
	defer q.unlock(now)
	all := map[string]string{
		"ApproximateNumberOfMessages":           strconv.Itoa(q.counts[ready]),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(q.counts[delayed]),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(q.counts[flying]),
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"QueueArn":                              q.arn,
	}
	maps.Copy(all, q.settings.values)
	chosen := map[string]string{}
	for _, name := range c.in.names {
		switch value, is := all[name]; {
		case name == "All":
			chosen = all
		case is:
			chosen[name] = value
		case !isAttribute(name) && !slices.Contains(computed, name):
			return errAttributeName.withf("Unknown Attribute %s.", name)
		}
	}
	w := &c.out
	w.open('{')
	w.dict("Attributes", chosen)
	w.close('}')
	return nil
}

func (c *call) setQueueAttributes() *apiError {
	q := c.q
	now := q.lock()
	defer q.unlock(now)
	next, err := q.settings.change(c.in.settings, q.fifo)
	if err != nil {
		return err
	}
	if text, ok := c.in.settings["RedrivePolicy"]; ok {
		if err := q.a.checkTarget(next.redrive, text, q.arn, q.fifo); err != nil {
			return err
		}
	}
	if next.dedupPerGroup != q.settings.dedupPerGroup {
		q.scopeWas, q.scopeFrom = q.dedupPerGroup(now), now+propagation
	}
	delay := q.settings.delay
	q.settings, q.modified = next, time.Now()
	if q.fifo && next.delay != delay {
		q.changeDelay(now)
	}
	return nil
}
