package sqsfake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// redrivePolicy says where messages go that nobody could handle.
type redrivePolicy struct {
	target      string // an ARN
	maxReceives int
}

// allowPolicy says which queues may use a queue as their dead-letter queue.
type allowPolicy struct {
	permission string
	sources    []string // ARNs
}

func (p *allowPolicy) allows(arn string) bool {
	if p == nil {
		return true
	}
	switch p.permission {
	case "denyAll":
		return false
	case "byQueue":
		return slices.Contains(p.sources, arn)
	default:
		return true
	}
}

func parseRedrivePolicy(text string) (*redrivePolicy, *apiError) {
	if text == "" {
		return nil, nil
	}
	var raw struct {
		Target *string `json:"deadLetterTargetArn"`
		Max    any     `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy is not a valid JSON map.")
	}
	if raw.Target == nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	if raw.Max == nil {
		return nil, badValue("RedrivePolicy", text, "Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	n, err := strconv.Atoi(fmt.Sprint(raw.Max)) // a number, or one in quotes
	if err != nil || n < 1 || n > 1000 {
		return nil, badValue("RedrivePolicy", text, fmt.Sprintf("Invalid value for maxReceiveCount: %v, valid values are from 1 to 1000 both inclusive.", raw.Max))
	}
	if strings.Count(*raw.Target, ":") != 5 || !strings.HasPrefix(*raw.Target, "arn:") {
		return nil, badValue("RedrivePolicy", text, "Invalid value for deadLetterTargetArn.")
	}
	return &redrivePolicy{target: *raw.Target, maxReceives: n}, nil
}

func parseAllowPolicy(text string) (*allowPolicy, *apiError) {
	if text == "" {
		return nil, nil
	}
	var raw struct {
		Permission string   `json:"redrivePermission"`
		Sources    []string `json:"sourceQueueArns"`
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return nil, badValue("RedriveAllowPolicy", text, "Redrive allow policy is not a valid JSON map.")
	}
	byQueue := raw.Permission == "byQueue"
	switch {
	case raw.Permission != "allowAll" && raw.Permission != "denyAll" && !byQueue:
		return nil, badValue("RedriveAllowPolicy", text, "Invalid value for redrivePermission: one of allowAll, denyAll, byQueue.")
	case byQueue && (len(raw.Sources) < 1 || len(raw.Sources) > 10):
		return nil, badValue("RedriveAllowPolicy", text, "sourceQueueArns must have 1 to 10 elements where redrivePermission is byQueue.")
	case !byQueue && len(raw.Sources) > 0:
		return nil, badValue("RedriveAllowPolicy", text, "sourceQueueArns is valid only where redrivePermission is byQueue.")
	}
	return &allowPolicy{permission: raw.Permission, sources: raw.Sources}, nil
}
