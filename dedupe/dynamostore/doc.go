// Package dynamostore is a [dedupe.Store] in a DynamoDB table: durable, shared by any number of
// workers and Lambda functions, two writes a job, and able to complete a job in one transaction
// with the user's own items ([Store.Commit]).
//
//	cfg, err := config.LoadDefaultConfig(ctx) // github.com/aws/aws-sdk-go-v2/config
//	store, err := dynamostore.New(dynamodb.NewFromConfig(cfg), "onceq-records", nil)
//	err = store.CreateTable(ctx) // or by Terraform or CloudFormation, below
//
// # Exactly one effect
//
// A handler whose effects are items in DynamoDB, in the same account and region, commits them with
// the end of its job. All of it is written or nothing is, whatever crashes. A worker that was
// overtaken cannot commit at all:
//
//	func (p *payments) Handle(ctx context.Context, job *onceq.Job) error {
//		return p.store.Commit(ctx, job, receipt, types.TransactWriteItem{Put: &types.Put{
//			TableName: aws.String("ledger"), Item: line, ConditionExpression: aws.String("attribute_not_exists(id)"),
//		}})
//	}
//
// Up to 99 items go with it. [Store.CompleteItems] returns the one action that completes a job, for
// a transaction that you send yourself.
//
// # The table
//
// The partition key is "key" and the sort key "scope", both strings: two values that are never
// joined, so that no choice of one meets another pair's record, and a busy scope is spread over all
// partitions. Many scopes and programs share a table. Besides the key an item has
//
//	status       claimed, released, done, failed, parked, or forgotten: what Forget leaves
//	fence        number that rises with each claim of the key
//	version      number that rises with each write
//	token        of the last claim, 32 hexadecimal digits
//	attempt      number; started (true once the handler may run, under Park); policy (rerun, park)
//	owner        and message_id, for people
//	created      and claimed_at, updated, finished, lease_until: microseconds since 1970
//	expires_at   seconds since 1970, or Options.TTLAttribute: the table's TTL; absent while claimed or parked
//	result       and state, fingerprint: binary; state_no: the state's number
//	error_class  and first_error, last_error
//	commit       which transaction has completed it
//	past         binary: the earlier attempts of a job that was tried again; dedupe.DecodePast reads it
//	sent         when the job was sent, in microseconds since 1970
//	attention    failed, parked or released, a point and a hexadecimal digit; absent in every other state
//
// and some 350 to 600 bytes in all, beside results and saved steps. DynamoDB deletes an expired
// item within some days ([TTL]). The store counts it as absent at once. An item that this store has
// not written is an error that says so.
//
// A list of failed, parked or released records reads the whole table, unless Options.AttentionIndex
// names a global secondary index with the partition key "attention", a string, and the projection
// KEYS_ONLY. It may be added to a table that is there.
//
// In Terraform:
//
//	resource "aws_dynamodb_table" "onceq" {
//	  name         = "onceq-records"
//	  billing_mode = "PAY_PER_REQUEST"
//	  hash_key     = "key"
//	  range_key    = "scope"
//	  attribute {
//	    name = "key"
//	    type = "S"
//	  }
//	  attribute {
//	    name = "scope"
//	    type = "S"
//	  }
//	  ttl {
//	    attribute_name = "expires_at"
//	    enabled        = true
//	  }
//	}
//
// In a SAM or CloudFormation template, with the function's rights:
//
//	Records:
//	  Type: AWS::DynamoDB::Table
//	  Properties:
//	    BillingMode: PAY_PER_REQUEST
//	    AttributeDefinitions:
//	      - {AttributeName: key, AttributeType: S}
//	      - {AttributeName: scope, AttributeType: S}
//	    KeySchema:
//	      - {AttributeName: key, KeyType: HASH}
//	      - {AttributeName: scope, KeyType: RANGE}
//	    TimeToLiveSpecification: {AttributeName: expires_at, Enabled: true}
//	Function:
//	  Type: AWS::Serverless::Function
//	  Properties:
//	    Policies:
//	      - Statement:
//	          - Effect: Allow
//	            Action: [dynamodb:GetItem, dynamodb:PutItem, dynamodb:UpdateItem]
//	            Resource: !GetAtt Records.Arn
//
// # Permissions
//
//	{
//	  "Version": "2012-10-17",
//	  "Statement": [
//	    {"Sid": "Work", "Effect": "Allow", "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/onceq-records",
//	     "Action": ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]},
//	    {"Sid": "Operators", "Effect": "Allow",
//	     "Resource": ["arn:aws:dynamodb:REGION:ACCOUNT:table/onceq-records", "arn:aws:dynamodb:REGION:ACCOUNT:table/onceq-records/index/*"],
//	     "Action": ["dynamodb:Scan", "dynamodb:Query"]},
//	    {"Sid": "Setup", "Effect": "Allow", "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/onceq-records",
//	     "Action": ["dynamodb:CreateTable", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:UpdateTimeToLive"]}
//	  ]
//	}
//
// A worker needs the first part, and for a Commit also the rights to its own items. The transaction
// itself needs no right. GetItem is for [Store.Get], which is called by
//
//   - a worker, when a handler still runs at a beat after its Commit,
//   - onceq.Do, when its call has failed after a Commit,
//   - onceq.Result, [Store.Forget] and [Store.List].
//
// A worker whose handlers return after their Commit works without it. [Store.List] needs Scan, and
// Query where Options.AttentionIndex names an index; [Store.CreateTable] needs the last part.
//
// # What it costs
//
// A write costs a unit for each KB begun of the larger of the item before and after it, also one
// whose condition fails; a write in a transaction costs two ([units]). With records below 1 KB:
//
//	a job                                    2 units: claim and settlement
//	under Park                               3: the start is written, too
//	with Commit                              3, and 2 for each KB of each item of the user's own
//	with CompleteItems                       1 more: the worker asks, by a write, whether the transaction was written
//	a duplicate of a job that is done        1 more
//	a retry, a takeover, a replay            3 more: the claim is refused once, then swaps what it has read
//	a beat of a long job                     1, every 10 s with the default Lease of 30 s
//	a process's first claim                  nothing more; 1 where the host's clock is wrong, or the answer takes more than a second
//
// A million jobs are 2 million units: 1.25 $ at 0.625 $ a million, the price on demand in us-east-1
// in November 2026; with results of 3 KB five million, 3.13 $. A million records kept for 31 days
// are about 0.6 GB, 0.15 $ a month. Deletions by TTL cost nothing. [Store.List] reads the whole
// table: a read unit for each 4 KB, 0.02 $ for a million records.
//
// # Safety, and clocks
//
// Every transition is one conditional write. It depends on the token and the fence, or on the
// version that was read, and never on a clock. If a condition fails, DynamoDB answers with the
// item, so no further read is needed. If an answer is lost, the store sends the same write again,
// and its own token wins at once.
//
// A clock decides only when a lease is dead. The store goes by the service's time: the host's time,
// corrected by the Date of every answer. That is right to about ten milliseconds after a while.
// Leases are kept 2 s longer than their owners count on them.
//
// The store makes no extra request to learn the time. A process does not know it before its first
// answer, and after its host was suspended or its clock was set. Then:
//
//   - It inserts its claim with the host's time, and keeps the lease 3 s longer. An insertion takes
//     nothing from anybody, and its answer tells the time.
//   - What the insertion meets is judged by the time of that answer.
//   - If the inserted time was wrong by more than a second, the claim is written again, with the
//     right times and fence, before it is reported.
//
// So a worker whose clock is ten minutes wrong neither steals leases nor loses its own.
//
// A worker that dies between those two writes leaves a record with its host's time. If that was
// behind, the key is free that much earlier, and another worker claims the job as its next attempt.
// (The same happens if a duplicate comes just between the two writes.) If it was ahead, the key is
// held that much longer. Both are five minutes at most, because AWS refuses what was signed more
// than that beside its own time ([signatures]). The claim is then written anew by the time of the
// refusal.
//
// A suspended host, both of whose clocks stood still, is noticed by the next answer. If that is the
// answer to a renewal, a settlement or a Commit, one write more puts its times right. So the lease
// and the retention are whole.
//
// Nothing on the way may spoil the Date. If answers come without a Date, or without their
// X-Amzn-Requestid, the store takes the host's time as it is. If a proxy replaces the Date, the
// store believes the proxy.
//
// The fence of a key rises over Forget, which leaves an item of some hundred bytes for 31 days.
// Each fence is above the last one and above the milliseconds since 1970. So it also rises after
// DynamoDB has deleted the item, and in a table that was restored from a backup. This assumes that
// the service's clock does not go back by a retention, and that nobody claims one key more than
// once a millisecond for that long. It also assumes that no retention is shorter than half a
// minute, because the times of two workers may be some seconds apart. (A [onceq.Processor]'s is a
// minute at least.) (A read between the two writes of a claim from a host with a wrong clock may
// show a fence that no claim is ever won with.)
//
// A worker may be frozen: by SIGSTOP, by a suspended host, in a Lambda environment between
// invocations. It holds its claims until their leases end. Then another worker takes them over.
// When the frozen one wakes, it changes nothing more: its renewals and settlements are
// [dedupe.ErrLeaseLost], and its Commit is cancelled with all its items. Nobody can hold back what
// it does elsewhere, in a payment API for instance. Give that API [onceq.Job.EffectKey], or the
// fence.
//
// The table must be in one region, because a global table applies a condition in the region of the
// write. Another region's workers would win the same key. A table that is restored from a backup
// has forgotten what was done since, and those jobs may run twice.
//
// # Requests
//
// The entries of a batch go out at once, up to 50 of a call, each as a write of its own. So ten
// take as long as the slowest one. (PartiQL's BatchExecuteStatement was measured beside it: no
// fewer units, slower on DynamoDB Local at any distance, two IAM actions more, and its INSERT does
// not show what it has met.) The store's copy of the client keeps 200 idle connections to the
// service. Behind a proxy, or with a transport of your own, allow as many.
//
// A call repeats what throttling, failures of the service, resets and silence have stopped. It
// pauses for 50 ms to 5 s between tries and goes on until its context ends, or for about half a
// minute if the context has no end. A try gets half of the time that is left, at least 500 ms and
// at most 10 s. The Retryer of the user's client is not asked. A record that a transaction holds is
// tried again for about 100 ms and is then [dedupe.ErrBusy].
//
// # Limits
//
//	a record, names and values together         400 KB (409,600 bytes)
//	a result, and what a run has saved           390 KB (399,360 bytes) each: larger is dedupe.ErrResultSize, before anything is written
//	owner, message id and fingerprint together   8,000 bytes: larger is dedupe.ErrBadRequest
//	items of a Commit                            99, and 4 MB in all; those of one transaction are different items
//	entries of a call                            100
//
// A result takes the place of the steps that a run has saved, because the job is done. If an
// error's text does not fit, it is cut, and the history of earlier attempts is dropped. Each
// duplicate reads the result, so keep large ones elsewhere. Sources: DynamoDB's [quotas] and
// [transactions].
//
// # Moving from Powertools' idempotency table
//
// Powertools' table has another key, and its records no fence, so onceq's stands beside it.
//
//	id: function#hash of the key        key and scope: ProcessorConfig.Key gives the part of the message that event_key_jmespath chose
//	status INPROGRESS                   claimed
//	status COMPLETED                    done; failures leave failed, released or parked, where Powertools deletes the record
//	in_progress_expiration              lease_until, renewed while the handler runs
//	expiration                          expires_at; Powertools' default is 1 hour, onceq's 31 days: longer than queue and dead-letter queue keep a message
//	data                                result
//	validation                          fingerprint
//
// The two do not see each other's claims, so they must never take messages of one queue at the same
// time:
//
//   - Disable the old function's event source mapping, wait for the function's timeout, and enable
//     the new one.
//   - Let the new handler begin with a consistent read of the old item. If it is COMPLETED and has
//     not expired, return nil, with [onceq.Job.SetResult] of its data. If it is INPROGRESS and
//     in_progress_expiration, in milliseconds, lies ahead, return RetryAfter for what is left.
//   - When Powertools' records have expired and the queue's retention is over, take out the read
//     and delete the old table.
//
// [onceq.Job.EffectKey]: https://pkg.go.dev/github.com/onceq/onceq#Job.EffectKey [TTL]:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html [signatures]:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html [units]:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
// [quotas]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
// [transactions]:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
// [onceq.Job.SetResult]: https://pkg.go.dev/github.com/onceq/onceq#Job.SetResult
package dynamostore
