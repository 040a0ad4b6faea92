"""Puts one job into a queue in SQLite: python3 sqlite_producer.py FILE:QUEUE KEY BODY [TYPE].
On PostgreSQL the row is the same; see docs/record.md."""
import sqlite3
import sys

from sqs_producer import metadata


def send(db, queue, key, body, job_type=None):
    db.execute(
        "INSERT INTO onceq_messages (queue, meta, body) VALUES (?, ?, ?)",
        (queue, metadata(key, job_type), body),
    )


if __name__ == "__main__":
    file, _, name = sys.argv[1].rpartition(":")
    connection = sqlite3.connect(file, timeout=30)
    with connection:  # commits, beside rows of yours
        send(connection, name, *sys.argv[2:])
