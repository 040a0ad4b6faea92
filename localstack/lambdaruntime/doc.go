// Package lambdaruntime runs a function's binary on this machine as Lambda does, for tests.
//
//	f := lambdaruntime.New(t, lambdaruntime.Options{Command: []string{binary}, Timeout: 30 * time.Second})
//	defer f.Close()
//	result := f.Invoke(ctx, event)
//
// It serves the Lambda runtime API (of 2018-06-01) and starts the binary in sandboxes, with one
// invocation at a time in each. It freezes a sandbox between invocations (SIGSTOP), thaws it for
// the next one (SIGCONT), and kills it at its timeout (SIGKILL). [Function.Poll] is an event source
// mapping of an SQS queue in front of it.
//
// [Source.Twice] invokes the function a second time with the same event, which Lambda does now and
// then without a cause that anybody sees.
//
// It is stricter than Lambda in one thing: a sandbox is frozen the moment that its answer has
// arrived, and not when it asks for the next invocation, so that what a function leaves to be done
// after its answer does not happen.
//
// What it does not do: limit memory, reuse a sandbox's temporary folder, run extensions, stream
// answers. It runs on Unix systems.
package lambdaruntime
