// Sends one job to a Pub/Sub topic: tsx pubsub_producer.ts TOPIC KEY BODY [TYPE].
// TOPIC is projects/P/topics/T. Needs @google-cloud/pubsub.
import { randomUUID } from "node:crypto";
import { PubSub } from "@google-cloud/pubsub";

/** What a worker of onceq reads; docs/record.md has all members. */
function metadata(key: string, type?: string): string {
  return JSON.stringify({ v: 1, id: randomUUID(), t: type, k: key, cr: Date.now() });
}

const [topic, key, body, type] = process.argv.slice(2);
const client = new PubSub({ projectId: topic.split("/")[1] });
await client.topic(topic).publishMessage({ data: Buffer.from(body), attributes: { onceq: metadata(key, type) } });
await client.close();
