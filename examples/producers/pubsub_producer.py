"""Sends one job to a Pub/Sub topic: python3 pubsub_producer.py TOPIC KEY BODY [TYPE].
TOPIC is projects/P/topics/T. Needs google-cloud-pubsub."""
import sys

from google.cloud import pubsub_v1

from sqs_producer import metadata


def send(publisher, topic, key, body, job_type=None):
    return publisher.publish(topic, body.encode(), onceq=metadata(key, job_type)).result(timeout=30)


if __name__ == "__main__":
    send(pubsub_v1.PublisherClient(), *sys.argv[1:])
