package webonceq

import "net/http"

// This file owns the table of routes, with what each needs. It never changes.

// routes is the table.
func routes() []route {
	return []route{
		{"GET", "/{$}", Look, (*Page).home},
		{"GET", "/events", Look, (*Page).events},
		{"GET", "/q/{queue}", Look, (*Page).queue},
		{"POST", "/q/{queue}/pause", Look | Pause, (*Page).pause},
		{"POST", "/q/{queue}/limit", Look | Pause, (*Page).limit},
		{"POST", "/rules/{id}/end", Look | Pause, (*Page).end},

		{"GET", "/q/{queue}/letters", Look, (*Page).letters},
		{"POST", "/q/{queue}/look", Look, (*Page).lookAgain},
		{"GET", "/q/{queue}/letters/{group}", Look, (*Page).group},
		{"GET", "/q/{queue}/letters/{group}/export", Look | Bodies, (*Page).export},
		{"GET", "/q/{queue}/body/{message}", Look | Bodies, (*Page).body},

		{"POST", "/q/{queue}/plan", Look | Replay, (*Page).planReplay},
		{"POST", "/q/{queue}/edit", Look | Replay | Edit, (*Page).planEdit},
		{"POST", "/q/{queue}/purge", Look | Purge, (*Page).planPurge},
		{"POST", "/key/plan", Look | Replay, (*Page).planKey},
		{"POST", "/key/edit", Look | Replay | Edit, (*Page).planKeyEdit},
		{"GET", "/plans/{id}", Look, (*Page).showPlan},
		{"POST", "/plans/{id}/run", Look | Replay, (*Page).runReplay},
		{"POST", "/plans/{id}/run-edited", Look | Replay | Edit, (*Page).runEdited},
		{"POST", "/plans/{id}/purge", Look | Purge, (*Page).runPurge},
		{"GET", "/acts/{id}", Look, (*Page).act},
		{"POST", "/acts/{id}/stop", Look | Replay, (*Page).stop},
		{"POST", "/acts/{id}/stop-purge", Look | Purge, (*Page).stopPurge},
		{"POST", "/acts/{id}/step", Look | Replay, (*Page).step},

		{"GET", "/key", Look, (*Page).key},
		{"POST", "/key/look", Look, (*Page).keyLook},
		{"POST", "/key/resolve", Look | Resolve, (*Page).resolve},
		{"POST", "/key/forget", Look | Resolve, (*Page).forget},
		{"GET", "/keys", Look, (*Page).keys},
		{"POST", "/keys", Look, (*Page).keys},
		{"GET", "/audit", Look, (*Page).audit},

		{"GET", "/api/queues.json", Look, (*Page).queuesJSON},
		{"GET", "/api/letters.json", Look, (*Page).lettersJSON},
		{"GET", "/api/acts.json", Look, (*Page).actListJSON},
		{"GET", "/api/audit.json", Look, (*Page).auditJSON},
	}
}

// route builds the table's mux.
func (p *Page) route() {
	p.mux = http.NewServeMux()
	p.needs = map[string]Permission{}
	for _, x := range routes() {
		if x.method == http.MethodPost {
			p.needs[x.path] = x.need
		}
		p.mux.HandleFunc(x.method+" "+p.o.Base+x.path, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, &x) })
	}
	p.mux.HandleFunc("GET "+p.o.Base+"/static/{hash}/{name}", static)
	p.mux.HandleFunc("GET "+p.o.Base+"/robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("User-agent: *\nDisallow: /\n"))
	})
}
