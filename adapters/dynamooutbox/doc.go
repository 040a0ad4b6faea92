// Package dynamooutbox is the producer's outbox on DynamoDB: jobs are put by the TransactWriteItems
// that writes the items which they tell of ([Outbox.Items]), and relays send them on to the queue
// where the workers are. An order that was written has its job, an order that was not has none.
//
//	records, err := dynamostore.New(client, "onceq-records", nil)
//	outbox, err := dynamooutbox.New(client, "onceq-outbox", "mail", records, nil)
//	err = outbox.CreateTable(ctx) // at every start of producers and relays
//
//	jobs, err := outbox.Items(onceq.Message("mail", "A-1", body))
//	_, err = client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: append(jobs, order)})
//
// With dynamostore's Commit a job completes and sends the next one, or does neither:
//
//	next, err := outbox.Items(broker.Outgoing{Meta: &broker.Meta{Type: "ship", Key: j.EffectKey("ship")}})
//	return records.Commit(ctx, j, nil, append(next, mine...)...)
//
// An Outbox is a [broker.Receiver] that nothing but onceq.Forward should read. The relay is a
// Worker with Forward, in any process and in any number of them:
//
//	onceq.ProcessorConfig{Handler: onceq.Forward(sqs), Store: onceq.NoStore, Scope: "outbox"}
//
// # Who reads what
//
// Messages are spread over [Options].Partitions partition keys. A relay reads those whose claim it
// holds in the store that New was given, under the scope ":outbox". So no two relays read one
// partition, and a group is sent in its order. The first relay takes all partitions that are free;
// the others wait to take them over: within [Options].Lease when it dies, within a third of that
// when it was closed. Receive and Extend renew the claims, so there is no goroutine.
//
// What a relay has handed out, and the delays of its nacks, are in its memory. When it dies, the
// next one sends again what was sent and not deleted yet, as the same jobs: their keys absorb it.
// It also tries at once what waited for a backoff.
//
// # Order
//
// Messages of a group are sent in the order of their [SequenceAttribute], a number that the
// producer gives: the version of the aggregate, written under a condition in the same transaction.
// The clocks of the producers do not matter then. Without it the order is that of Meta.Created, by
// those clocks. A head that fails, is delayed or can never be sent holds its group.
//
// A look reads consistently, so a message that is there is seen. DynamoDB shows the items of one
// transaction one by one, for some milliseconds. A message whose transaction is just being written
// may come behind a later one of its group, if that was written in the same moment by a producer
// that did not wait for the first.
//
// # The table
//
// The partition key is "pk", the sort key "sk", both strings. Many outboxes share a table.
//
//	pk       the queue's name, '#', and the partition's number; "config" there is the queue's settings
//	sk       of a group: g#, its digest, the sequence; at once: t#, when it was made; delayed: u#, when
//	         it is due; and the place in its Items, and the content's digest
//	body     binary; attrs a map of strings; meta the job's metadata; group
//	at       when the message was made, and due when it may be sent, in milliseconds
//
// In Terraform:
//
//	resource "aws_dynamodb_table" "outbox" {
//	  name         = "onceq-outbox"
//	  billing_mode = "PAY_PER_REQUEST"
//	  hash_key     = "pk"
//	  range_key    = "sk"
//	  attribute {
//	    name = "pk"
//	    type = "S"
//	  }
//	  attribute {
//	    name = "sk"
//	    type = "S"
//	  }
//	}
//
// Nothing expires: give the table no TTL. An item that is deleted by hand is not sent, and its
// group goes on.
//
// # Permissions
//
// A producer needs dynamodb:PutItem on the table; a relay needs Query, GetItem and BatchWriteItem,
// with which it deletes, and what dynamostore needs. Depth needs Query. CreateTable needs
// DescribeTable, GetItem and PutItem, and CreateTable where there is no table.
//
// PutItem on the table is PutItem on every queue in it: such a producer may overwrite the messages
// of others, hold up a group for ever by an item that cannot be read, and stop a queue by
// overwriting its settings. So let a producer write items of its own queue alone. Partitions have
// one to three digits, hence the settings are left out:
//
//	{
//	  "Effect": "Allow",
//	  "Action": "dynamodb:PutItem",
//	  "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/onceq-outbox",
//	  "Condition": {
//	    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["orders#?", "orders#??", "orders#???"]},
//	    "Null": {"dynamodb:LeadingKeys": "false"},
//	    "Bool": {"aws:SecureTransport": "true"}
//	  }
//	}
//
// Producers of one queue can still overwrite each other's messages: give those that do not trust
// each other a queue each.
//
// # What it costs
//
// A message below 1 KB takes two write units in the transaction and one when it is deleted, and a
// look of 100 such messages some 25 read units. At 0.625 $ a million write units and 0.125 $ a
// million read units (on demand, us-east-1, November 2026) a million messages cost
//
//	3 units to write and delete    3,000,000 × 0.625 $ = 1.88 $
//	0.25 units to read             250,000 × 0.125 $   = 0.03 $
//
// An idle relay looks into 8 partitions each second, for one read unit a look: 21 million a month,
// 2.6 $; with a Poll of 5 s half a dollar. Its claims are 8 writes each 15 s, 1.4 million a month,
// 0.9 $. A waiting relay asks for them as often. Requests: a hundredth of a look and a 25th of a
// delete for each message of a backlog.
//
// What is in somebody's hands, or waits for a backoff, is read again in each round. A relay then
// looks less often, so that it reads 100 such items a Poll and partition at most.
//
// # Limits
//
//	an item                         400 KB, of which the body has 384 KiB (393,216 bytes)
//	a transaction                   100 actions and 4 MB, yours and those of Items together
//	a partition                     1,000 write units a second: with 3 units a message some 330 messages
//	a group                         1,024 bytes; all of a group are in one partition
//
// Sources: DynamoDB's [quotas] and [transactions].
//
// [quotas]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
// [transactions]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
package dynamooutbox
