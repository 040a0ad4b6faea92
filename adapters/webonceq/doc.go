// Package webonceq is the operator's page: an http.Handler on which somebody with a phone sees
// which failures there are, pauses them, proves the mend on five jobs, replays the rest once, and
// sees who did what. It is made of package ops alone, and shows what the command onceq shows.
//
//	page, err := webonceq.New(o, &webonceq.Options{Title: "prod", Base: "/onceq"}) // o is an *ops.Ops
//	mux.Handle("/onceq/", page)
//	defer page.Close(ctx) // what runs stops in order
//
// Unless [Options].Access says more, everybody who reaches it by a name of this host may look, sees
// neither bodies nor texts of errors, and may not act. docs/page.md has what to set behind a proxy.
//
// # What it costs
//
// Nothing until somebody looks. Then one look at all queues every five seconds, for all viewers,
// until nobody has looked for twenty (see [ops.Board]). A pass through the dead letters costs each
// of them a receive: the first visit to the letters of a queue begins one, and then the button.
//
// # What is refused
//
// A request is refused with a 403, and a line in [Options].Logger, where its Host is none of
// [Options].Hosts, where another site's page has sent it, where Access refuses it, and where the
// route needs a [Permission] that the one who asks has not. Which route needs what stands in one
// table. Each act goes through ops with the name of who asked, so the audit has it.
//
// An act that is refused for a reason, such as a pause that the queue cannot pay, is answered with
// a 409 (429 where too much runs at once), on the same screen with a sentence beside the button.
//
// # Timeouts
//
// They are the server's. Set [http.Server].ReadHeaderTimeout, and a ReadTimeout of some seconds. A
// WriteTimeout should be 60 s or more, because an export writes for as long; the page's streams
// extend it by themselves.
//
// # JSON
//
// GET /api/queues.json, /api/letters.json?queue=, /api/acts.json and /api/audit.json?since= give
// what the screens show, under the same permissions.
//
// Experimental: it may change in any minor version. docs/release.md says what that means.
package webonceq
