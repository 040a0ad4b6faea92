package sqsfake

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file owns a queue's attributes: which there are, their limits and defaults. create calls
// change without a lock, because settings never change: a change makes new ones. The actions that
// read and set them are in attributes.go.

// settings are a queue's attributes. A value never changes: setting attributes makes a new one.
type settings struct {
	values map[string]string // as they are told

	visibility, delay, retention, wait time.Duration
	maxSize                            int64
	contentDedup, dedupPerGroup        bool
	redrive                            *redrivePolicy
	allow                              *allowPolicy
}

// maxMessageSize is the most that a queue may allow, and the most of a batch's messages
// together: bodies and attributes.
const maxMessageSize = 1 << 20

type bounds struct{ least, most int64 }

// numeric are the attributes that are numbers, with their limits.
var numeric = map[string]bounds{
	"VisibilityTimeout":             {0, 43_200},
	"DelaySeconds":                  {0, 900},
	"MaximumMessageSize":            {1024, maxMessageSize},
	"MessageRetentionPeriod":        {60, 1_209_600},
	"ReceiveMessageWaitTimeSeconds": {0, 20},
	"KmsDataKeyReusePeriodSeconds":  {60, 86_400},
}

// choices are the attributes that are one of a few words.
var choices = map[string][]string{
	"FifoQueue":                 {"true", "false"},
	"ContentBasedDeduplication": {"true", "false"},
	"SqsManagedSseEnabled":      {"true", "false"},
	"DeduplicationScope":        {"queue", "messageGroup"},
	"FifoThroughputLimit":       {"perQueue", "perMessageGroupId"},
}

// booleans are the choices between true and false. AWS takes them in any case, as Python writes
// them: LocalStack's recordings say "True".
var booleans = map[string]bool{"FifoQueue": true, "ContentBasedDeduplication": true, "SqsManagedSseEnabled": true}

func loweredBooleans(given map[string]string) map[string]string {
	lowered := maps.Clone(given)
	for name, value := range lowered {
		if booleans[name] {
			lowered[name] = strings.ToLower(value)
		}
	}
	return lowered
}

// texts are the attributes that are taken as they come; an empty one is removed.
var texts = []string{"Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId"}

var onlyFIFO = []string{"FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}

func defaults(fifo bool) map[string]string {
	m := map[string]string{
		"VisibilityTimeout": "30", "DelaySeconds": "0", "MaximumMessageSize": strconv.Itoa(maxMessageSize),
		"MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
		"SqsManagedSseEnabled": "true",
	}
	if fifo {
		m["FifoQueue"], m["ContentBasedDeduplication"] = "true", "false"
		m["DeduplicationScope"], m["FifoThroughputLimit"] = "queue", "perQueue"
	}
	return m
}

func isAttribute(name string) bool {
	_, isNumber := numeric[name]
	_, isChoice := choices[name]
	return isNumber || isChoice || slices.Contains(texts, name)
}

// change is the settings with other values.
func (old *settings) change(given map[string]string, fifo bool) (*settings, *apiError) {
	given = loweredBooleans(given)
	values := maps.Clone(old.values)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if err := checkAttribute(name, value, fifo); err != nil {
			return nil, err
		}
		if value == "" || name == "KmsDataKeyReusePeriodSeconds" && value == "300" {
			delete(values, name) // nor does AWS tell its default (LocalStack's recordings)
		} else {
			values[name] = value
		}
	}
	if values["KmsMasterKeyId"] != "" {
		if given["SqsManagedSseEnabled"] == "true" {
			return nil, errAttributeName.withf("You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
		}
		values["SqsManagedSseEnabled"] = "false"
	}
	if values["FifoThroughputLimit"] == "perMessageGroupId" && values["DeduplicationScope"] != "messageGroup" {
		return nil, errAttributeValue.withf("Invalid value for the parameter FifoThroughputLimit. Reason: perMessageGroupId needs DeduplicationScope messageGroup.")
	}
	return read(values)
}

func checkAttribute(name, value string, fifo bool) *apiError {
	if !isAttribute(name) {
		return errAttributeName.withf("Unknown Attribute %s.", name)
	}
	if slices.Contains(onlyFIFO, name) && !fifo {
		if booleans[name] {
			return errAttributeName.withf("Unknown Attribute %s.", name)
		}
		return errAttributeName.withf("You can specify the %s only when FifoQueue is set to true.", name)
	}
	if name == "FifoQueue" && value == "false" {
		return errAttributeValue.withf("Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.")
	}
	if b, ok := numeric[name]; ok {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < b.least || n > b.most {
			return errAttributeValue.withf("Invalid value for the parameter %s. Reason: Must be an integer from %d to %d.", name, b.least, b.most)
		}
	}
	if words := choices[name]; words != nil && !slices.Contains(words, value) {
		return errAttributeValue.withf("Invalid value for the parameter %s. Reason: Must be one of %s.", name, strings.Join(words, ", "))
	}
	return nil
}

// read makes settings of values that were checked one by one.
func read(values map[string]string) (s *settings, err *apiError) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(values[name], 10, 64)
		return n
	}
	seconds := func(name string) time.Duration { return time.Duration(number(name)) * time.Second }
	s = &settings{
		values: values, visibility: seconds("VisibilityTimeout"), delay: seconds("DelaySeconds"),
		retention: seconds("MessageRetentionPeriod"), wait: seconds("ReceiveMessageWaitTimeSeconds"),
		maxSize: number("MaximumMessageSize"), contentDedup: values["ContentBasedDeduplication"] == "true",
		dedupPerGroup: values["DeduplicationScope"] == "messageGroup",
	}
	if s.redrive, err = parseRedrivePolicy(values["RedrivePolicy"]); err != nil {
		return nil, err
	}
	if s.allow, err = parseAllowPolicy(values["RedriveAllowPolicy"]); err != nil {
		return nil, err
	}
	return s, nil
}
