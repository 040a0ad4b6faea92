// Package localstack finds or starts the real back ends that tests run against.
//
//	func TestOrders(t *testing.T) {
//		db := localstack.Postgres(t) // an empty database of this test's own
//		pool, err := pgxpool.New(t.Context(), db.URL)
//		…
//		s := localstack.SQS(t) // a server that all tests share
//		orders, err := awssqs.New(s.Client(t), s.Queue(t, "orders", nil), nil) // a queue of this test's own
//		…
//		d := localstack.DynamoDB(t) // a server that all tests share
//		records, table := d.Client(t), d.TableName(t, "records") // a table of this test's own, once it makes one
//		…
//		p := localstack.PubSub(t) // a server that all tests share
//		project := p.Project(t)   // a project of this test's own, for its topics and subscriptions
//		…
//		f := localstack.Firestore(t) // a server that all tests share
//		records := f.Project(t)      // a project of this test's own, for its documents
//		…
//	}
//
// A back end is looked for in an order, and the first that works is taken. PostgreSQL:
//
//  1. An address in the environment: ONCEQ_POSTGRES_URL, postgres://user:password@host:port/name of a user who may
//     create databases. One that does not work fails the tests. ONCEQ_POSTGRES_DURABLE_URL is
//     the one for [PostgresOptions].Durable; where it is not set, the first serves as well, if
//     it waits for the disk.
//  2. The programs installed on this machine: initdb and postgres in the folder that
//     ONCEQ_POSTGRES_BIN names, else in PATH, else where packages put them, the newest first. The
//     server is a throwaway one, on a free port of the loopback address, with a password, as the
//     user postgres where we are root. It does not wait for the disk, and its data is in memory
//     where /dev/shm has 1 GB free; [PostgresOptions] asks for one that does wait.
//  3. Docker, through testcontainers-go: the image that ONCEQ_POSTGRES_IMAGE names, else the newest
//     "postgres" that is here, else a pull of postgres:17-alpine, given up after two minutes.
//
// SQS:
//
//  1. An endpoint in the environment: ONCEQ_SQS_URL, http://host:port of LocalStack, ElasticMQ or any other, AWS's own included:
//     AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are for it alone. One that does not work fails
//     the tests.
//  2. Docker: the image that ONCEQ_SQS_IMAGE names, else localstack/localstack:4.14.0, the last
//     that needs no account, which is pulled where it is not here.
//  3. LocalStack as a process of this machine, on the loopback address: 4.14.0 where there is a
//     Python 3.13 or later, 4.13.1 on 3.10 to 3.12. Python is what ONCEQ_PYTHON names, else the
//     best that PATH has as python3 and as python3.14 down to python3.10; it needs the modules venv
//     and ensurepip (Debian: python3-venv). The first time, the wheels of a lock file are
//     downloaded, checked against its hashes and unpacked, in a minute or two: 200 MB in the folder
//     onceq of the user's cache, which may be removed when no test runs.
//  4. sqsfake, which is stricter than those, but no second opinion: the line at the end of the run
//     says "sqsfake (embedded)".
//
// DynamoDB:
//
//  1. An endpoint in the environment: ONCEQ_DYNAMODB_URL, http://host:port of DynamoDB Local, LocalStack or any other, AWS's own
//     included, with the settings that SQS's takes. One that does not work fails the tests.
//  2. Docker: the image that ONCEQ_DYNAMODB_IMAGE names, a DynamoDB Local or a LocalStack, else
//     amazon/dynamodb-local:3.1.0, which is pulled where it is not here.
//  3. AWS's DynamoDB Local 3.1.0 as a process of this machine, in memory, on the loopback address
//     (its own main class listens on all), with its telemetry off. Java is what ONCEQ_JAVA names,
//     else JAVA_HOME's, PATH's or an installed one, 17 or later. The first time, Maven
//     (ONCEQ_MAVEN, else mvn in PATH) fetches the jars of a project file from where its settings
//     say, in a minute. They are checked against a list of sums, each time before they run; Maven's
//     own plugin runs with the sums of the repository that it comes from. It is 44 MB in the folder
//     onceq of the user's cache, which may be removed when no test runs.
//
// There is no stand-in for it: an evaluator of expressions of ours would only confirm our own
// reading.
//
// Google Pub/Sub:
//
//  1. An address in the environment: PUBSUB_EMULATOR_HOST, host:port, as Google's clients want it.
//     One that does not work fails the tests.
//  2. Docker: the image that ONCEQ_PUBSUB_IMAGE names, else the Google Cloud CLI's with emulators,
//     which is pulled where it is not here.
//  3. The emulator of an installed Google Cloud CLI (gcloud components install pubsub-emulator),
//     as a process of this machine, on the loopback address. The CLI is what ONCEQ_GCLOUD names,
//     else PATH's gcloud, else one where installers put it. Java is found as for DynamoDB, 11 or
//     later.
//
// Firestore is found as Pub/Sub is: FIRESTORE_EMULATOR_HOST; Docker, with the image that
// ONCEQ_FIRESTORE_IMAGE names, else the same; the emulator of an installed CLI (gcloud components
// install cloud-firestore-emulator), with Java 17 or later.
//
// There is no stand-in for either here.
//
// All start within six minutes or are given up. Where none works, the test is skipped with all
// the reasons. Where the variable ONCEQ_BACKENDS is "all", or names the back end (names have
// commas between them: "postgres,dynamodb"), it fails, and sqsfake does not do. "all" leaves
// Pub/Sub and Firestore out, because their emulators come with the Google Cloud CLI alone;
// "all,pubsub,firestore" asks for them as well. A browser, which internal/chromium finds, is asked
// for as "chromium".
//
// # One instance for a run
//
// make test runs go test through a small program, internal/testrun, which names a folder in the
// environment (ONCEQ_RUN). The first test that asks for a back end starts it, all packages of
// the run share it, each test in a database of its own. At the end stands one line per back
// end, and nothing is skipped in silence:
//
//	backend postgres: PostgreSQL 15.18 (host process), 57 tests
//	backend postgres: none (host process: no initdb and postgres …; Docker: …), 0 of 57 tests
//	backend sqs: LocalStack 4.14.0 (host process), 57 tests
//	backend sqs: sqsfake (embedded), 57 tests
//	backend dynamodb: DynamoDB Local 3.1.0 (host process), 57 tests
//	backend pubsub: Pub/Sub emulator 0.8.20 (host process), 57 tests
//	backend firestore: Firestore emulator 1.19.9 (host process), 57 tests
//
// Without that program each test process has an instance of its own, and go test shows why a
// test was skipped with -v alone. Its cache does not see what is installed: after that has
// changed, use -count=1.
//
// # Who else is on the machine
//
// What is started listens on the loopback address: containers too, where Docker is on this
// machine and we are in no container ourselves; else their ports are open on all of Docker's
// addresses. Other users of the machine can come there. PostgreSQL asks for a password and
// proves that it knows it, so that nobody who takes the port is believed. DynamoDB Local,
// LocalStack and Google's emulators ask nobody: other users may read and forge what the tests
// store, so results from a machine that is shared with strangers prove little. The first two
// inherit their port, and nobody can take it. Google's cannot, so each is believed only once it
// has said itself that it listens there. They run as the user who tests, root included, because
// Python, Java and what they
// run may lie in that user's home, where no other account may come. PostgreSQL alone refuses
// root and runs as postgres or nobody. So test as a user other than root where you can.
//
// # Nothing is left behind
//
// What was started ends with the run, also when that is interrupted or killed: a second process
// of the test binary, in a session of its own, is the server's parent. It sees a pipe close
// when the run's first process is gone, ends the server or removes the container, and deletes
// the folder. On a server from the environment the databases of a killed process are dropped by
// the next one that uses it; its queues and tables stay, under names that begin with onceq-.
//
// # Another back end
//
// It is one file with a variable of type backend (see postgres.go): its name, the variable for
// its address, the ways to start it, and how to ask for its version; and a line in the tables
// backends and rundir.Names.
package localstack
