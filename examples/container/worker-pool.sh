#!/bin/sh
# A Cloud Run worker pool that takes orders from Pub/Sub. It has no address, so nobody asks it for its
# health: its log tells. Cloud Run stops an instance with SIGTERM, and ends it 10 s later: STOP_GRACE
# is that, and LONG_POLL is short enough for it.
#
# The service account needs roles/pubsub.subscriber and roles/pubsub.viewer on the subscription, and
# roles/pubsub.publisher on the topic of the dead letters. The keys are in Firestore, in the
# project's database (default): it needs roles/datastore.user on the project.
exec gcloud run worker-pools deploy orders-worker \
	--region=europe-west3 \
	--image=europe-west3-docker.pkg.dev/my-project/images/worker:1 \
	--service-account=orders-worker@my-project.iam.gserviceaccount.com \
	--set-env-vars=STOP_GRACE=10s,LONG_POLL=5s,CONCURRENCY=20 \
	--set-env-vars=SUBSCRIPTION=projects/my-project/subscriptions/orders \
	--set-env-vars=DEAD_LETTER_TOPIC=projects/my-project/topics/orders-dead \
	--set-env-vars=BANK_URL=https://bank.example.com/charges
