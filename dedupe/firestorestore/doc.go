// Package firestorestore is a [dedupe.Store] in a Firestore collection: durable, shared by any
// number of workers and services, two writes a job, and able to complete a job in one transaction
// with the user's own writes ([Store.Commit]). With Pub/Sub and Cloud Run nothing is left to run.
//
//	client, err := firestore.NewClientWithDatabase(ctx, "my-project", "(default)")
//	api, err := firestorestore.NewAPI(ctx)
//	store, err := firestorestore.New(client, api, "onceq", nil)
//
// # Exactly one effect
//
// A handler whose effects are documents of the same database commits them with the end of its job.
// All of it is written or nothing is, whatever crashes. A worker that was overtaken cannot commit
// at all:
//
//	func (p *payments) Handle(ctx context.Context, job *onceq.Job) error {
//		return p.store.Commit(ctx, job, receipt, func(ctx context.Context, tx *firestore.Transaction) error {
//			return tx.Create(p.client.Collection("ledger").Doc(receipt.ID), line)
//		})
//	}
//
// # The documents
//
// A document's id is a hash of scope and key, so that neighbouring keys do not meet in one range of
// names, which Firestore would slow down. Many scopes and programs share a collection. Its fields:
//
//	scope        and key
//	status       claimed, released, done, failed, parked, or forgotten: what Forget leaves
//	fence        number that rises with each claim of the key
//	token        of the last claim, 32 hexadecimal digits
//	attempt      number; absent = 1. started (true once the handler may run, under Park); policy (park; absent = rerun)
//	owner        and message_id, for people
//	claimed_at   and lease_until; created, updated and finished where they differ from what came before
//	expires_at   or Options.TTLField: when the record ends; absent while claimed or parked
//	result       and state, fingerprint: bytes; state_no: the state's number
//	error_class  and first_error, last_error
//	commit       which Commit has completed it
//	past         bytes: the earlier attempts of a job that was tried again; dedupe.DecodePast reads it
//	sent         when the job was sent
//	attention    failed, parked or released; absent in every other state
//
// Fields that others add stay. A document that this store has not written is an error that says so.
//
// Firestore indexes each field by default. The store needs one index, that of attention, and the
// rising times would slow all writes of the collection down to 500 a second ([practices]). So
// switch the others off, field by field, and let a TTL policy delete what has expired:
//
//	gcloud firestore indexes fields update FIELD --collection-group=onceq --disable-indexes
//	gcloud firestore fields ttls update expires_at --collection-group=onceq --enable-ttl
//
// The page docs/backend-firestore.md has them all, and the same in Terraform. The policy deletes
// within a day or so ([TTL]). The store counts an expired record as absent at once. [Store.Check]
// tells what is missing.
//
// # What it costs
//
// Firestore bills documents that are written, read and deleted, whatever their size:
//
//	a job                                      2 writes: claim and settlement, and later the deletion
//	under Park                                 3: the start is written, too
//	with Commit                                2, and those of the user's own
//	a beat of a long job, a step, a postponing 1 write each
//	a duplicate of a job that is done          1 read
//	a retry, a takeover, a replay              2 writes more and 1 read: the record is read, then swapped
//	a process's first call                     1 read, which tells the service's time
//
// The entries of a call go out in one BatchWrite, each with a precondition and an answer of its
// own. So ten claims are one request.
//
// # Safety, and clocks
//
// Every transition is one write that depends on the document's absence, or on the update time of
// what was read or written last, and never on a clock. If the precondition fails, the store reads
// the document and decides again. If an answer is lost, it reads the document too: what it was
// about to write is there, or is not. The store remembers the update times of its own claims. So a
// renewal, a settlement and a Commit read nothing.
//
// A clock decides only when a lease is dead. The store goes by the service's time: the host's time,
// corrected by the times that the answers bring. It is never ahead of the service's, and behind it
// by no more than the quickest answer took. So a worker whose clock is ten minutes wrong neither
// steals leases nor loses its own. A process that does not know the time, because it begins, or its
// host was suspended, or its clock was set, asks for it first, with a read. Leases are kept 1 s
// longer than their owners count on them.
//
// The fence of a key rises over Forget, which leaves a document of some hundred bytes for 31 days.
// Each fence is above the last one and above the milliseconds since 1970. So it also rises after
// Firestore has deleted the document, and in a database that was restored from a backup. This
// assumes that nobody claims one key more than once a millisecond for a retention, and that no
// retention is shorter than the quickest answer of the service, which is ten seconds at most.
//
// A worker may be frozen: by SIGSTOP, by a suspended host, in Cloud Run between requests. It holds
// its claims until their leases end. Then another worker takes them over. When the frozen one
// wakes, it changes nothing more: its renewals and settlements are [dedupe.ErrLeaseLost], and so is
// its Commit. Nobody can hold back what it does elsewhere, in a payment API for instance. Give that
// API [onceq.Job.EffectKey], or the fence.
//
// A database that is restored from a backup has forgotten what was done since, and those jobs may
// run twice.
//
// # Requests
//
// A call repeats what throttling, failures of the service, resets and silence have stopped. It
// pauses for 50 ms to 5 s between tries and goes on until its context ends, or for about half a
// minute if the context has no end. A try gets half of the time that is left, at least 500 ms and
// at most 10 s. The retries of the clients are not used, except within a transaction. A document
// that a transaction holds (ABORTED) is tried again for about 100 ms and is then [dedupe.ErrBusy].
//
// Firestore advises one write a second to a document, over some time, and to let a new load grow by
// half every five minutes from 500 a second ([practices]). A key has two writes. A load that grows
// faster is RESOURCE_EXHAUSTED or ABORTED for a while, and both are repeated.
//
// # Limits
//
//	a record, names and values together         1 MiB (1,048,576 bytes)
//	a result, and what a run has saved           1,008 KiB (1,032,192 bytes) each: larger is dedupe.ErrResultSize, before anything is written
//	owner, message id and fingerprint together   8,000 bytes: larger is dedupe.ErrBadRequest
//	writes of a Commit                           498, and 10 MiB in all
//	entries of a call                            500; more than some 9 MiB go out in several requests
//
// An indexed value counts with its first 1,500 bytes. The field attention is shorter. If an error's
// text does not fit, it is cut, and the history of earlier attempts is dropped. Source: Firestore's
// [quotas].
//
// # The emulator
//
// FIRESTORE_EMULATOR_HOST names an emulator to both clients. It lets nobody but an owner call
// BatchWrite, so give an apiv1.Client of your own the header "Authorization: Bearer owner", as
// [NewAPI] does. It knows no TTL policy, no switched off index, no rights, and no limit on the
// load.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
//
// [onceq.Job.EffectKey]: https://pkg.go.dev/github.com/onceq/onceq#Job.EffectKey
// [practices]: https://cloud.google.com/firestore/docs/best-practices
// [TTL]: https://cloud.google.com/firestore/docs/ttl
// [quotas]: https://cloud.google.com/firestore/quotas
package firestorestore
