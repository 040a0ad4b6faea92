package pubsubfake

import (
	"sync"

	"google.golang.org/grpc"
)

// wire is what serves gRPC.
type wire struct {
	mu      sync.Mutex
	stopped bool
	servers map[*grpc.Server]struct{}
}

func (w *wire) add(g *grpc.Server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	if w.servers == nil {
		w.servers = map[*grpc.Server]struct{}{}
	}
	w.servers[g] = struct{}{}
	return true
}

func (w *wire) remove(g *grpc.Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.servers, g)
}

// stop ends all, and returns when their goroutines have ended.
func (w *wire) stop() {
	w.mu.Lock()
	w.stopped = true
	var all []*grpc.Server
	for g := range w.servers {
		all = append(all, g)
	}
	w.mu.Unlock()
	for _, g := range all {
		g.Stop()
	}
}
