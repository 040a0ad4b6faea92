package snippets

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceq/onceq/adapters/membroker"
	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/dedupe/memstore"
)

func TestPage(t *testing.T) {
	queue, err := membroker.New(nil)
	require.NoError(t, err)
	store, err := memstore.New(nil)
	require.NoError(t, err)
	dead, err := membroker.New(nil)
	require.NoError(t, err)
	o, err := shown(queue, dead, store)
	require.NoError(t, err)
	ask := func(h http.Handler, host, user, path string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		r.Header.Set("X-Forwarded-User", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}

	mux := http.NewServeMux()
	here, err := onlooking(mux, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, here.Close(t.Context())) }()
	require.Equal(t, http.StatusOK, ask(mux, "localhost:8080", "", "/onceq/"))
	require.Equal(t, http.StatusForbidden, ask(mux, "ops.example", "", "/onceq/"))

	refused := new(bytes.Buffer)
	proxy := netip.MustParsePrefix("192.0.2.0/24") // where httptest's requests are from
	proxied, err := behindProxy(o, proxy, slog.New(slog.NewTextHandler(refused, nil)))
	require.NoError(t, err)
	defer func() { require.NoError(t, proxied.Close(t.Context())) }()
	require.Equal(t, http.StatusOK, ask(proxied, "ops.example", "ana", "/"))
	require.Equal(t, http.StatusOK, ask(proxied, "ops.example", "zoe", "/"))
	require.Equal(t, http.StatusForbidden, ask(proxied, "ops.example", "", "/"))
	require.Contains(t, refused.String(), "X-Forwarded-User")
	require.NotZero(t, onCall("ana").May&webonceq.Replay)
	require.Zero(t, onCall("zoe").May&webonceq.Replay)
}
