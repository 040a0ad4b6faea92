// Package awssqs drives Amazon SQS queues, standard and FIFO.
package awssqs

import (
	_ "github.com/aws/aws-sdk-go-v2/aws"
	_ "github.com/aws/aws-sdk-go-v2/service/sqs"
	_ "github.com/aws/smithy-go"
)
