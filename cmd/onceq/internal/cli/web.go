package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceq/onceq/adapters/webonceq"
	"github.com/onceq/onceq/cmd/onceq/internal/out"
	"github.com/onceq/onceq/dlq"
)

// This file owns the command web: the operator's page on the loopback address, and who gets in. The
// server's goroutines ask the door, which has a lock of its own; the goroutine of Main only waits.

// webEnding is how long acts, letters that are held, and answers have at the end.
const webEnding = 20 * time.Second

func (a *app) webCommand() *cobra.Command {
	var keep, listen string
	var look bool
	c := &cobra.Command{
		Use: "web [QUEUE…]", Short: "The same in a browser, on this machine alone", ValidArgsFunction: a.completeQueues,
		Long: "Serves the operator's page on the loopback address until it is ended, and prints an address that opens\n" +
			"it once, in one browser, which may act as you from then on. Then it prints the next address. When the\n" +
			"command ends, acts that are under way are stopped in order.",
		RunE: a.unbounded(func(ctx context.Context, args []string) error {
			l, err := listenHere(ctx, listen)
			if err != nil {
				return err
			}
			defer l.Close()
			w, err := a.open(ctx, needParts|needShared, args...)
			if err != nil {
				return err
			}
			defer w.close()
			who := webonceq.Access{Name: a.by(), May: webonceq.All &^ webonceq.Purge}
			if look {
				who.May = webonceq.Look | webonceq.Bodies
			}
			var kept func(dlq.Entry) error
			if keep != "" && !look {
				f, err := openKept(keep)
				if err != nil {
					return err
				}
				defer f.Close()
				kept, who.May = inTurn(dlq.ExportJSON(f)), who.May|webonceq.Purge
			}
			return a.serveWeb(ctx, w, l, who, kept)
		}),
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "a HOST:PORT of the loopback address; port 0 = a free one")
	f.BoolVar(&look, "look", false, "nobody can act through it")
	f.StringVarP(&keep, "file", "f", "", "the file that keeps what a purge removes; without it there is no purge")
	return c
}

// inTurn has one act write at a time.
func inTurn(write func(dlq.Entry) error) func(dlq.Entry) error {
	var mu sync.Mutex
	return func(e dlq.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		return write(e)
	}
}

// listenHere refuses what others than this machine can reach.
func listenHere(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, exit(exitUsage, "--listen: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, exit(exitUsage, "--listen: %s can be reached by others; want 127.0.0.1:PORT. A page for many is webonceq's, in a program of yours", address)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, exit(exitUsage, "--listen: %w", err)
	}
	return l, nil
}

// serveWeb serves the page until ctx ends.
func (a *app) serveWeb(ctx context.Context, w *world, l net.Listener, who webonceq.Access, keep func(dlq.Entry) error) error {
	// A cookie knows no port, so another user's server on this address would be sent it. It knows
	// a path: nobody else's server is asked for this one.
	d := &door{who: who, base: "/" + strings.ToLower(rand.Text()[:12]), in: map[string]bool{}}
	o := &webonceq.Options{Base: d.base, Access: d.access, Keep: keep, Logger: slog.New(slog.NewTextHandler(a.io.Err, nil))}
	if w.profile != nil {
		o.Title, o.Protected = w.profile.Name, w.profile.Protect
	}
	page, err := webonceq.New(w.Ops, o)
	if err != nil {
		return err
	}
	d.page = page
	d.tell = func(url string) { a.say("opened; another browser opens the next one once:\n%s", url) }
	d.url = "http://" + l.Addr().String() + d.base + "/?token="
	first := d.next()
	if err := a.show(out.Result{Lines: []string{first}, Value: webView{URL: first}, IDs: []string{first}}); err != nil {
		return errors.Join(err, page.Close(ctx))
	}
	a.say("the page opens once at this address, for %s; ctrl-C ends it", who.Name)
	s := &http.Server{Handler: d, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-ended:
		err = exit(exitReach, "--listen: %w", err)
	}
	going, cancel := context.WithTimeout(context.WithoutCancel(ctx), webEnding)
	defer cancel()
	return errors.Join(err, page.Close(going), s.Shutdown(going))
}

// A door lets in who has the address that was printed, each once, and then who has its cookie.
type door struct {
	who  webonceq.Access
	page http.Handler
	base string
	url  string // of a token, which is left out
	tell func(url string)

	mu    sync.Mutex
	token string
	in    map[string]bool // the cookies
}

const doorCookie = "onceq"

// next makes the next address. The caller has mu, or nobody else has the door.
func (d *door) next() string {
	d.token = rand.Text()
	return d.url + d.token
}

// ServeHTTP takes a token, and asks the page for all else.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	if token == "" || r.Method != http.MethodGet || r.URL.Path != d.base+"/" {
		d.page.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	session, next := d.open(token)
	if session == "" {
		http.Error(w, "This address has opened the page already, or was never one. The terminal has the next one.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: doorCookie, Value: session, Path: d.base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, d.base+"/", http.StatusSeeOther)
	d.tell(next) // without the lock: a terminal that stands still stops nobody who is in
}

// open takes a token. It answers a cookie's value and the next address; empty where it is not the
// one that was printed.
func (d *door) open(token string) (session, next string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) == 0 {
		return "", ""
	}
	session = rand.Text()
	d.in[session] = true
	return session, d.next()
}

var errNoCookie = errors.New("the browser has not opened the printed address")

func (d *door) access(r *http.Request) (webonceq.Access, error) {
	c, err := r.Cookie(doorCookie)
	if err != nil {
		return webonceq.Access{}, errNoCookie
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.in[c.Value] {
		return webonceq.Access{}, errNoCookie
	}
	return d.who, nil
}
