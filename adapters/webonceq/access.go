package webonceq

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// This file owns who may do what. The HTTP server's goroutines ask it; nothing is kept, and nothing
// is locked.

// A Permission is what somebody may do. Permissions are joined with |.
type Permission uint16

// The permissions. None of them has another one in it.
const (
	// Look shows numbers, groups of failures, workers, keys and the audit: no body, and no text of
	// an error. A look at letters costs each of them a receive.
	Look Permission = 1 << iota
	// Bodies shows bodies and the texts of errors, and gives letters out as a file.
	Bodies
	// Pause makes and ends rules: pauses and limits.
	Pause
	// Replay plans and runs replays, and stops them.
	Replay
	// Edit changes what a replay sends. It needs Replay as well.
	Edit
	// Resolve decides on parked keys, and forgets keys.
	Resolve
	// Purge plans and runs purges, and stops them.
	Purge
)

// All are all permissions.
const All = Look | Bodies | Pause | Replay | Edit | Resolve | Purge

var permissions = []string{"look", "bodies", "pause", "replay", "edit", "resolve", "purge"}

// String names the permissions, such as "look, pause".
func (p Permission) String() string {
	var names []string
	for i, name := range permissions {
		if p.has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (p Permission) has(all Permission) bool { return p&all == all }

// Access is who asks, and what he may.
type Access struct {
	// Name is his name, which the audit has. Whoever has none may look at most, whatever May says.
	Name string
	// May is what he may do. 0 = nothing.
	May Permission
	// Queues are the names of the targets that he sees; nil = all. The audit and the rules of other
	// queues are not shown to him, nor acts on all queues. A rule of all queues is shown as one of
	// his queue, without who made it and why, and he cannot end it.
	Queues []string
}

func (a *Access) sees(queue string) bool { return a.Queues == nil || slices.Contains(a.Queues, queue) }

// settled is what a says in fact: no act without a name.
func (a Access) settled() Access {
	if a.May &= All; a.Name == "" {
		a.May &= Look | Bodies
	}
	return a
}

// HeaderAccess takes the name of who asks from a header that a proxy sets after it has checked him,
// such as X-Forwarded-User. Only peers whose address is in trusted may set it: a request of any
// other peer is refused, with the header or without it. of says what the person of that name may;
// a zero Access is refused. Its Name is set to the header's.
//
// The proxy must replace the header of its clients. A request that has it twice is refused.
func HeaderAccess(header string, trusted []netip.Prefix, of func(name string) Access) func(*http.Request) (Access, error) {
	trusted = slices.Clone(trusted)
	return func(r *http.Request) (Access, error) {
		peer, err := peerOf(r)
		if err != nil {
			return Access{}, err
		}
		if !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) }) {
			return Access{}, fmt.Errorf("%v is no trusted proxy, so its %s means nothing", peer, header)
		}
		names := r.Header.Values(header)
		if len(names) != 1 || strings.TrimSpace(names[0]) == "" {
			return Access{}, fmt.Errorf("the proxy has set %s %d times, want one name", header, len(names))
		}
		name := strings.TrimSpace(names[0])
		a := of(name)
		a.Name = name
		return a, nil
	}
}

func peerOf(r *http.Request) (netip.Addr, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, errors.New("the peer has no address, so nobody knows whether it is the proxy")
	}
	return peer.Addr().Unmap().WithZone(""), nil
}

// hosts are the Host headers that are served. Without the check, a page of another site whose name
// leads to this address (DNS rebinding) would read and act as if it were ours.
type hosts []string

var loopback = hosts{"localhost", "127.0.0.1", "::1"}

func (hs hosts) known(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	return slices.ContainsFunc(hs, func(h string) bool {
		return strings.EqualFold(h, host) || strings.EqualFold(strings.Trim(h, "[]"), name)
	})
}
