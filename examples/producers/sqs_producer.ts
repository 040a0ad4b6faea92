// Sends one job to an SQS queue: tsx sqs_producer.ts QUEUE_URL KEY BODY [TYPE].
// Needs @aws-sdk/client-sqs.
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";
import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

/** What a worker of onceq reads; docs/record.md has all members. */
export function metadata(key: string, type?: string): string {
  return JSON.stringify({ v: 1, id: randomUUID(), t: type, k: key, cr: Date.now() });
}

export async function send(client: SQSClient, queue: string, key: string, body: string, type?: string) {
  await client.send(new SendMessageCommand({
    QueueUrl: queue,
    MessageBody: body,
    MessageAttributes: { onceq: { DataType: "String", StringValue: metadata(key, type) } },
  }));
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [queue, key, body, type] = process.argv.slice(2);
  await send(new SQSClient(), queue, key, body, type);
}
