"""Sends one job to an SQS queue: python3 sqs_producer.py QUEUE_URL KEY BODY [TYPE]. Needs boto3."""
import json
import sys
import time
import uuid


def metadata(key, job_type=None, job_id=None):
    """What a worker of onceq reads; docs/record.md has all members."""
    meta = {"v": 1, "id": job_id or str(uuid.uuid4())}
    if job_type:
        meta["t"] = job_type
    meta |= {"k": key, "cr": time.time_ns() // 1_000_000}
    return json.dumps(meta, separators=(",", ":"))


def send(client, queue_url, key, body, job_type=None):
    return client.send_message(
        QueueUrl=queue_url,
        MessageBody=body,
        MessageAttributes={"onceq": {"DataType": "String", "StringValue": metadata(key, job_type)}},
    )


if __name__ == "__main__":
    import boto3

    send(boto3.client("sqs"), *sys.argv[1:])
