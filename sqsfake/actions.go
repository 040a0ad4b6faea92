package sqsfake

// action is one of the API's actions: what it takes, and what it does.
type action struct {
	signature
	run func(*call) *apiError
}

// messageParams are what a sent message may have.
var messageParams = set(pBody, pDelay, pAttributes, pSystemAttributes, pDedupID, pGroupID)

// actions is the API. All but a few are about one queue and name it by QueueUrl.
var actions = map[string]*action{
	"AddPermission":         all(set(pQueueURL, pLabel, pAccounts, pActions), (*call).addPermission),
	"CancelMessageMoveTask": all(set(pTaskHandle), (*call).cancelMessageMoveTask),
	"ChangeMessageVisibility": all(set(pQueueURL, pReceiptHandle, pVisibility),
		(*call).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": batch(set(pReceiptHandle, pVisibility), set(pReceiptHandle, pVisibility),
		(*call).changeMessageVisibilityBatch),
	"CreateQueue":        some(set(pQueueName, pSettings, pTagsAtCreation), set(pQueueName), (*call).createQueue),
	"DeleteMessage":      all(set(pQueueURL, pReceiptHandle), (*call).deleteMessage),
	"DeleteMessageBatch": batch(set(pReceiptHandle), set(pReceiptHandle), (*call).deleteMessageBatch),
	"DeleteQueue":        all(set(pQueueURL), (*call).deleteQueue),
	"GetQueueAttributes": some(set(pQueueURL, pNames), set(pQueueURL), (*call).getQueueAttributes),
	"GetQueueUrl":        some(set(pQueueName, pOwner), set(pQueueName), (*call).getQueueURL),
	"ListDeadLetterSourceQueues": some(set(pQueueURL, pNextToken, pMaxResults), set(pQueueURL),
		(*call).listDeadLetterSourceQueues),
	"ListMessageMoveTasks": some(set(pSourceARN, pMaxResults), set(pSourceARN), (*call).listMessageMoveTasks),
	"ListQueueTags":        all(set(pQueueURL), (*call).listQueueTags),
	"ListQueues":           some(set(pPrefix, pNextToken, pMaxResults), 0, (*call).listQueues),
	"PurgeQueue":           all(set(pQueueURL), (*call).purgeQueue),
	"ReceiveMessage": some(
		set(pQueueURL, pNames, pSystemNames, pAttributeNames, pMax, pVisibility, pWait, pAttemptID),
		set(pQueueURL), (*call).receiveMessage),
	"RemovePermission":   all(set(pQueueURL, pLabel), (*call).removePermission),
	"SendMessage":        some(set(pQueueURL)|messageParams, set(pQueueURL, pBody), (*call).sendMessage),
	"SendMessageBatch":   batch(messageParams, set(pBody), (*call).sendMessageBatch),
	"SetQueueAttributes": all(set(pQueueURL, pSettings), (*call).setQueueAttributes),
	"StartMessageMoveTask": some(set(pSourceARN, pDestinationARN, pRate), set(pSourceARN),
		(*call).startMessageMoveTask),
	"TagQueue":   all(set(pQueueURL, pTags), (*call).tagQueue),
	"UntagQueue": all(set(pQueueURL, pTagKeys), (*call).untagQueue),
}

// all is an action that requires all its parameters, some one that requires some of them.
func all(params paramSet, run func(*call) *apiError) *action { return some(params, params, run) }

func some(params, required paramSet, run func(*call) *apiError) *action {
	return &action{signature{params: params, required: required}, run}
}

func batch(params, required paramSet, run func(*call) *apiError) *action {
	a := all(set(pQueueURL, pEntries), run)
	a.entryParams, a.entryRequired = params|set(pID), required
	return a
}
