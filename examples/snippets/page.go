package snippets

import (
	"net/http"
	"net/netip"

	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/ops"
)

// onlooking mounts the page for people of this host, who look.
func onlooking(mux *http.ServeMux, o *ops.Ops) (*webonceq.Page, error) {
	page, err := webonceq.New(o, &webonceq.Options{Title: "prod", Base: "/onceq"}) // o is an *ops.Ops
	if err != nil {
		return nil, err
	}
	mux.Handle("/onceq/", page)
	return page, nil
}

// behindProxy makes the page for people whom a proxy knows.
func behindProxy(o *ops.Ops, proxy netip.Prefix, onCall func(name string) webonceq.Access) (*webonceq.Page, error) {
	access := webonceq.HeaderAccess("X-Forwarded-User", []netip.Prefix{proxy}, onCall)
	page, err := webonceq.New(o, &webonceq.Options{Hosts: []string{"ops.example"}, Access: access})
	return page, err
}
