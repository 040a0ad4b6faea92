package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onceq/onceq"
)

// This file owns what a user of the library writes: the job, and the client of the model. Handlers
// call it, from many goroutines, and nothing in it changes.

// question is what a job answers.
type question struct{ Text string }

// stages are the paid calls of a job.
var stages = []string{"plan", "draft", "review"}

// way is how the calls are protected. The zero value is how it should be.
type way struct {
	NoKey   bool // the model takes no idempotency key
	NoSteps bool // nothing is saved between two calls
}

// agent answers questions.
type agent struct {
	model modelClient
	way   way
}

// answer plans, drafts and reviews. Code between the calls may be anything: it is not replayed.
func (a *agent) answer(ctx context.Context, j *onceq.Job, q question) (string, error) {
	plan, err := a.call(ctx, j, "plan", q.Text)
	if err != nil {
		return "", err
	}
	draft, err := a.call(ctx, j, "draft", plan)
	if err != nil {
		return "", err
	}
	return a.call(ctx, j, "review", draft)
}

// call is one paid call, and one step. What the model has answered is saved before the next begins.
// A call whose answer was not saved is repeated under the same key.
func (a *agent) call(ctx context.Context, j *onceq.Job, stage, prompt string) (string, error) {
	ask := func(ctx context.Context) (string, error) {
		key := j.EffectKey(stage)
		if a.way.NoKey {
			key = ""
		}
		return a.model.ask(ctx, key, request{For: j.Key().Key + "/" + stage, Prompt: prompt})
	}
	if a.way.NoSteps {
		return ask(ctx)
	}
	return onceq.Step(ctx, j, stage, ask)
}

// request is a call's body. For is what the bill says.
type request struct{ For, Prompt string }

// callTimeout bounds one call.
const callTimeout = 10 * time.Second

// modelClient calls the model.
type modelClient struct {
	url, name string
	http      *http.Client
}

// ask calls the model. An error without an answer says nothing about the bill: the next attempt
// asks again, by the same key.
func (c *modelClient) ask(ctx context.Context, key string, r request) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return "", onceq.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return "", onceq.Permanent(err)
	}
	req.Header.Set("User-Agent", c.name)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("paid or not? %w", err)
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		err := json.NewDecoder(resp.Body).Decode(&text) // an answer that is cut short is none
		return text, err
	case code == http.StatusTooManyRequests, code == http.StatusConflict: // too many; or the first call still runs
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return "", onceq.Postpone(time.Duration(max(1, seconds))*time.Second, errors.New(resp.Status))
	case code >= 500:
		return "", fmt.Errorf("paid or not? %s", resp.Status)
	default:
		return "", onceq.Permanent(errors.New(resp.Status))
	}
}
