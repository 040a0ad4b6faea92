// Package awssqs drives Amazon SQS queues, standard and FIFO.
package awssqs
