// Package dynamostore is a [dedupe.Store] in a DynamoDB table.
package dynamostore
