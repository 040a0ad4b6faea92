package dynamostore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onceq/onceq/dedupe"
	"github.com/onceq/onceq/internal/records"
	"github.com/onceq/onceq/internal/retry"
)

// This file owns the completion of a job in a transaction with the user's own items. Handlers call
// Commit and CompleteItems, each in its own goroutine. writtenCommits.mu guards the tokens that a
// settlement looks up.

// MaxCommitItems is how many items of the user's own go into one transaction: DynamoDB takes 100
// actions, and the completion is one.
const MaxCommitItems = 99

// CompleteItems returns the one action that completes job, for a TransactWriteItems of the user's
// own. All of the transaction is written or nothing is. DynamoDB cancels it if another claim has
// taken the key or this one is settled already. The reason at the action's place is then
// ConditionalCheckFailed. [Store.Commit] sends such a transaction and reads the reasons.
//
// From now on the worker never writes done itself. What it finds after the handler decides. So the
// handler may return any error of the transaction, even if nobody knows whether it was written.
//
// s is the worker's own store, or one that was called before: it then knows the service's time, by
// which the record expires.
//
// A result that is a []byte is stored as it is, any other as JSON, and nil stores none. More than
// 390 KiB is [dedupe.ErrResultSize].
func (s *Store) CompleteItems(job dedupe.Owned, result any) ([]types.TransactWriteItem, error) {
	lease, stored, err := s.joining("CompleteItems", job, result)
	if err != nil {
		return nil, err
	}
	return []types.TransactWriteItem{s.completion(lease, stored, job, "", false)}, nil
}

// joining checks what completes a job.
func (s *Store) joining(call string, job dedupe.Owned, result any) (dedupe.Lease, []byte, error) {
	fail := func(err error) (dedupe.Lease, []byte, error) {
		return dedupe.Lease{}, nil, fmt.Errorf("dynamostore: %s: %w", call, err)
	}
	lease, err := records.Join(job)
	if err != nil {
		return fail(err)
	}
	if err := lease.Key.Validate(); err != nil {
		return fail(err)
	}
	stored, err := records.Encode(result, maxResult)
	if err != nil {
		return fail(err)
	}
	return lease, stored, nil
}

// completion is the settlement to done as a part of a transaction. Unlike Settle it refuses a job
// that is done already, because another transaction's effects would then stand beside the first
// one's.
func (s *Store) completion(l dedupe.Lease, result []byte, job dedupe.Owned, commit string, tight bool) types.TransactWriteItem {
	w := s.write("complete")
	sent := time.Now()
	at, retain := reading{s.now(), sent}, max(0, job.Retain())
	s.written.note(l.Token, ended{to: dedupe.Done, retain: retain, at: at})
	w.end(l.Key, dedupe.Done, at.now, retain)
	w.done(result, tight)
	if commit != "" {
		w.set(attrCommit, text(commit))
	}
	w.own(l.Token, &notSettled)
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.table, Key: keyOf(l.Key), UpdateExpression: w.expression(), ConditionExpression: w.condition(),
		ExpressionAttributeNames: w.names, ExpressionAttributeValues: w.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// CommitError names the user's item that made DynamoDB cancel the transaction. Nothing was written.
// errors.As finds the SDK's [types.TransactionCanceledException] behind it, with all the reasons.
type CommitError struct {
	// Index is the item's place among those that were given to Commit, from 0.
	Index int
	// Code is DynamoDB's reason, such as ConditionalCheckFailed, ItemCollectionSizeLimitExceeded or
	// ValidationError, and Message its text.
	Code, Message string
	// Item is the item as it was, where the action asks for that by
	// ReturnValuesOnConditionCheckFailure.
	Item map[string]types.AttributeValue

	err error
}

// Error names the item and the reason.
func (e *CommitError) Error() string {
	return fmt.Sprintf("dynamostore: Commit: nothing was written: item %d: %s: %s", e.Index, e.Code, e.Message)
}

// Unwrap is the SDK's error.
func (e *CommitError) Unwrap() error { return e.err }

// Commit writes items and completes job in one transaction: both or neither, whatever crashes, so
// that there is exactly one effect. items are up to [MaxCommitItems] actions on other items than
// the job's record, in any tables of the account and region. From Commit on the worker never writes
// done itself.
//
// Nil says that items are written and the job is done. So it does if a repeat finds that an earlier
// try with the same items was written and its answer was lost. The errors:
//
//   - [dedupe.ErrLeaseLost]: another claim has taken the key, this one is settled already, or it
//     was completed by other items than these, or in another store. Nothing was written, with one
//     exception: an earlier try was written, and its record has been forgotten since.
//   - [*CommitError]: an item of the user's own is the reason, such as a condition that does not
//     hold. Nothing was written.
//   - [dedupe.ErrResultSize]: result is longer than 390 KiB, or does not fit beside what the record
//     holds. Nothing was written.
//   - [dedupe.ErrBusy]: other transactions held one of the items until ctx ended. An earlier try
//     may have been written. Commit the same again, or return the error, and the worker finds out.
//   - Any other, such as ctx's own: the same holds as for ErrBusy.
//
// Commit repeats what conflicts, and what DynamoDB throttles, until ctx ends. The handler's context
// ends when its lease is lost. The ClientRequestToken derives from the claim's token and the whole
// request, so that DynamoDB recognises a repeat and nothing else.
func (s *Store) Commit(ctx context.Context, job dedupe.Owned, result any, items ...types.TransactWriteItem) error {
	lease, stored, err := s.joining("Commit", job, result)
	if err != nil {
		return err
	}
	if err := s.ready(ctx, 1); err != nil {
		return err
	}
	if len(items) > MaxCommitItems {
		return fmt.Errorf("dynamostore: Commit: %w: %d items, the limit is %d", dedupe.ErrBadRequest, len(items), MaxCommitItems)
	}
	if _, err := s.sure(ctx, lease.Key, lease.Token, true); err != nil {
		return s.explain(ctx, "Commit", err)
	}
	c := &commit{s: s, job: job, lease: lease, result: stored, items: items}
	c.id = c.identify()
	err = c.send(ctx, false)
	if isTooLarge(err) || c.noRoom(err) {
		err = c.send(ctx, true)
	}
	if err = c.explain(ctx, err); err == nil {
		by := s.written.take(lease.Token)
		s.redate(ctx, lease.Key, lease.Token, by)
		by.to, by.written = dedupe.Done, true
		s.written.note(lease.Token, by)
	}
	return err
}

// writtenCommits are the claims whose completions were sent, and whether that was answered with
// success. If so, the settlement that follows has nothing to ask, which saves a write a job. If
// not, it puts the times right of what a host that stood still has completed. A token that is
// forgotten costs that and nothing else.
type writtenCommits struct {
	mu     sync.Mutex
	tokens map[dedupe.Token]ended
}

// maxWritten bounds those that nobody settles.
const maxWritten = 10000

// note keeps e. Of several completions that may have been written the first counts: its time is the
// oldest.
func (w *writtenCommits) note(t dedupe.Token, e ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.to == 0 || w.tokens[t].to != 0 && !e.written {
		return
	}
	if w.tokens == nil || len(w.tokens) >= maxWritten {
		w.tokens = make(map[dedupe.Token]ended)
	}
	w.tokens[t] = e
}

// take removes what is known of t.
func (w *writtenCommits) take(t dedupe.Token) ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.tokens[t]
	delete(w.tokens, t)
	return e
}

// commit is a Commit on its way.
type commit struct {
	s      *Store
	job    dedupe.Owned
	lease  dedupe.Lease
	result []byte
	items  []types.TransactWriteItem
	// id names what is written. It is the same for the same items and result under the same claim.
	id string
}

func (c *commit) identify() string {
	h := sha256.New()
	p := printer{h}
	p.bytes(c.lease.Token[:])
	p.flag(c.result != nil)
	p.bytes(c.result)
	p.actions(c.items)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// send repeats the transaction while others hold its items.
func (c *commit) send(ctx context.Context, tight bool) error {
	// The completion is the last, so that the reasons have the places of the user's items.
	all := make([]types.TransactWriteItem, 0, len(c.items)+1)
	all = append(append(all, c.items...), c.s.completion(c.lease, c.result, c.job, c.id, tight))
	h := sha256.New()
	printer{h}.actions(all)
	h.Write(c.lease.Token[:])
	token := hex.EncodeToString(h.Sum(nil)[:16])
	in := &dynamodb.TransactWriteItemsInput{TransactItems: all, ClientRequestToken: &token}
	for n := 1; ; n++ {
		_, err := c.s.client.TransactWriteItems(ctx, in)
		if err == nil {
			return nil
		}
		if !c.isPassing(err) {
			return err
		}
		if n == patientTries || !retry.Rest(ctx, conflictPause(n)) {
			return fmt.Errorf("%w: %w", dedupe.ErrBusy, err)
		}
	}
}

// isPassing reports whether the transaction was cancelled for reasons that go away by themselves.
// Such a reason may have kept DynamoDB from looking at the completion. Then failed conditions of
// the user's mean nothing, because an earlier try may have been written.
func (c *commit) isPassing(err error) bool {
	var no *types.TransactionCanceledException
	if !errors.As(err, &no) || len(no.CancellationReasons) == 0 {
		return isConflict(err)
	}
	if own := c.own(err); own != nil && passes(own) {
		return true
	}
	for i := range no.CancellationReasons {
		if r := &no.CancellationReasons[i]; !holds(r) && !passes(r) {
			return false
		}
	}
	return true
}

// holds reports whether the reason is none: the action at its place could be done.
func holds(r *types.CancellationReason) bool {
	code := deref(r.Code)
	return code == "" || code == "None"
}

func passes(r *types.CancellationReason) bool {
	switch deref(r.Code) {
	case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		return true
	}
	return false
}

// own is the reason that concerns the completion; nil where the error has none.
func (c *commit) own(err error) *types.CancellationReason {
	var no *types.TransactionCanceledException
	if !errors.As(err, &no) || len(no.CancellationReasons) != len(c.items)+1 {
		return nil
	}
	return &no.CancellationReasons[len(c.items)]
}

// noRoom reports whether the record does not fit into its item.
func (c *commit) noRoom(err error) bool {
	r := c.own(err)
	return r != nil && deref(r.Code) == "ValidationError" && saysTooLarge(deref(r.Message))
}

func (c *commit) explain(ctx context.Context, err error) error {
	own := c.own(err)
	switch {
	case err == nil, errors.Is(err, dedupe.ErrBusy), own == nil && ctx.Err() != nil:
		return c.s.explain(ctx, "Commit", err)
	case own == nil:
		return c.denied(err)
	case deref(own.Code) == "ConditionalCheckFailed":
		return c.refused(own.Item, err)
	case c.noRoom(err):
		return fmt.Errorf("dynamostore: Commit: nothing was written: %w: the record would have more than %d bytes: %w", dedupe.ErrResultSize, maxItem, err)
	}
	var no *types.TransactionCanceledException
	errors.As(err, &no)
	for i := range c.items {
		if r := &no.CancellationReasons[i]; !holds(r) && !passes(r) {
			return &CommitError{Index: i, Code: deref(r.Code), Message: deref(r.Message), Item: r.Item, err: err}
		}
	}
	return c.s.explain(ctx, "Commit", err)
}

// denied is the error of a transaction that DynamoDB has not looked into. DynamoDB does not say
// which action is at fault. The completion is known to fit into its item without the saved steps.
func (c *commit) denied(err error) error {
	switch {
	case errors.As(err, new(*types.ResourceNotFoundException)):
		return fmt.Errorf("dynamostore: Commit: nothing was written: %w (are table %s and the tables of all items in the client's region?)", err, c.s.table)
	case isTooLarge(err):
		return fmt.Errorf("dynamostore: Commit: nothing was written: one of the items would have more than %d bytes: %w", maxItem, err)
	case isInvalid(err, ""):
		return fmt.Errorf("dynamostore: Commit: nothing was written: DynamoDB does not take the items: %w", err)
	}
	return fmt.Errorf("dynamostore: Commit: %w", err)
}

// refused says what has become of the claim. The completion's reason comes before those of the
// user's items, because their conditions fail, too, if the transaction was written before.
func (c *commit) refused(it item, err error) error {
	found, bad := c.s.decode(it)
	if bad != nil {
		return foreign("Commit", fmt.Errorf("nothing was written: %w: %w", bad, err))
	}
	// What a try before this one has written may have been forgotten since.
	what, why := "this try wrote nothing", "the key was claimed anew, its record is gone, or this is not the worker's store"
	if found != nil && found.rec.Token == c.lease.Token {
		what = "nothing was written"
		switch {
		case found.rec.Status == dedupe.Done && found.commit == c.id:
			return nil
		case found.rec.Status == dedupe.Done:
			why = "this claim was completed before, and not with these items and this result"
		default:
			why = "this claim is " + found.rec.Status.String() + " already"
		}
	}
	return fmt.Errorf("dynamostore: Commit: %s: %s: %w: %w", what, why, dedupe.ErrLeaseLost, err)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
