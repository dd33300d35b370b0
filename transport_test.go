package webhook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outhook/webhook/internal/egress"
)

// loopbackTransport reaches receivers of this test, and nothing else that is private.
func loopbackTransport() TransportConfig {
	return TransportConfig{
		AllowHTTP: true,
		Allow:     []AllowRule{{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: []PortRange{{1, 65535}}, Excerpts: true}},
	}
}

func newTestTransport(t *testing.T, cfg TransportConfig) *Transport {
	t.Helper()
	tr, err := NewTransport(cfg)
	require.NoError(t, err)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func okReceiver(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "seen "+r.Header.Get("X-Wrapped"))
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/"
}

func TestTheZeroTransportConfigIsStrict(t *testing.T) {
	t.Parallel()
	tr := newTestTransport(t, TransportConfig{})
	for raw, want := range map[string]string{
		"https://Hooks.Example:443":    "https://hooks.example/",
		"https://bücher.test:8443/in?": "https://xn--bcher-kva.test:8443/in?",
	} {
		got, err := tr.CheckURL(raw)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for raw, problem := range map[string]string{
		"http://hooks.example/":       "the scheme must be https", // A25
		"https://127.0.0.1/":          "the address is not allowed",
		"https://10.0.0.1/":           "the address is not allowed",
		"https://169.254.169.254/":    "the address is not allowed",
		"https://u:s3cret@h.example/": "it must not hold a user name or password",
		"https://h.example:6379/":     "port 6379 is not allowed (allowed: 443 and 1024-65535 less the ports of well-known services)",
	} {
		_, err := tr.CheckURL(raw)
		require.ErrorIs(t, err, ErrInvalid)
		assert.EqualError(t, err, "webhook: URL is refused: "+problem)
	}
}

func TestTransportConfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, cfg := range map[string]TransportConfig{
		"Allow[0].Prefix 0.0.0.0/0 opens too much": {Allow: []AllowRule{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}}},
		"Ports: range 2-1":                         {Ports: []PortRange{{2, 1}}},
		"TLSTimeout is -1ns":                       {TLSTimeout: -1},
		"egress proxy: URL":                        {Proxy: &EgressProxy{URL: "socks5://u:s3cret@h:1"}},
	} {
		_, err := NewTransport(cfg)
		require.ErrorContains(t, err, text)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestEveryWayToGiveATransportKeepsItsURLRules(t *testing.T) {
	t.Parallel()
	url := okReceiver(t)
	tr := newTestTransport(t, loopbackTransport())
	wrapped := tr.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTripFunc(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-Wrapped", "yes")
			return inner.RoundTrip(r)
		})
	})
	replaced := tr.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{}, Body: http.NoBody}, nil
		})
	})
	for name, c := range map[string]struct {
		rt     http.RoundTripper
		status int
		answer string
	}{
		"itself":   {tr, 200, "seen "},
		"wrapped":  {wrapped, 200, "seen yes"},
		"replaced": {replaced, 202, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := newEgressClient(c.rt, 0)
			require.NoError(t, err)
			res := client.Do(t.Context(), egress.Request{URL: url, Body: []byte("{}")})
			assert.Equal(t, c.status, res.Status, "%v", res.Err)
			assert.Equal(t, c.answer, string(res.Excerpt))
			// A32: an update and an attempt know the same rules.
			for _, bad := range []string{"http://10.0.0.1/", "http://u:p@127.0.0.1/", "ftp://127.0.0.1/"} {
				_, err := checkURL(client.Guard(), bad)
				assert.ErrorIs(t, err, ErrInvalid)
				assert.Equal(t, egress.ClassBlocked, client.Do(t.Context(), egress.Request{URL: bad}).Class)
			}
		})
	}
}

func TestATransportOfTheUsersOwnGetsTheDefaultURLRules(t *testing.T) {
	t.Parallel()
	client, err := newEgressClient(roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}, nil
	}), time.Second)
	require.NoError(t, err)
	assert.Equal(t, 204, client.Do(t.Context(), egress.Request{URL: "https://h.example/"}).Status)
	assert.Equal(t, egress.ClassBlocked, client.Do(t.Context(), egress.Request{URL: "http://h.example/"}).Class)

	client, err = newEgressClient(nil, 0)
	require.NoError(t, err)
	_, err = checkURL(client.Guard(), "https://h.example/")
	assert.NoError(t, err)
}

func TestAPolicyCanBeReplacedWhileInUse(t *testing.T) {
	t.Parallel()
	url := okReceiver(t)
	tr := newTestTransport(t, loopbackTransport())
	client, err := newEgressClient(tr, 0)
	require.NoError(t, err)
	require.Equal(t, 200, client.Do(t.Context(), egress.Request{URL: url}).Status)

	require.NoError(t, tr.SetPolicy(TransportConfig{AllowHTTP: true}))
	assert.Equal(t, egress.ClassBlocked, client.Do(t.Context(), egress.Request{URL: url}).Class)
	require.Error(t, tr.SetPolicy(TransportConfig{Ports: []PortRange{{}}}))
	assert.Equal(t, egress.ClassBlocked, client.Do(t.Context(), egress.Request{URL: url}).Class)
}

func TestAnHTTPClientAroundATransportIsGuarded(t *testing.T) {
	t.Parallel()
	url := okReceiver(t)
	hc := &http.Client{Transport: newTestTransport(t, TransportConfig{AllowHTTP: true})}
	resp, err := hc.Get(url)
	if err == nil {
		_ = resp.Body.Close()
	}
	assert.ErrorIs(t, err, egress.ErrBlocked)
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestA33 holds the library to one way out: attempts, test events, replays and probes
// cannot be guarded differently if none of them can open a connection by itself.
func TestA33OnlyThePackageEgressOpensConnections(t *testing.T) {
	t.Parallel()
	forbidden := map[string][]string{
		"net":        {"Dial", "DialTimeout", "DialTCP", "Dialer", "LookupHost", "LookupIP"},
		"net/http":   {"Get", "Post", "PostForm", "Head", "DefaultClient", "DefaultTransport", "Client", "Transport", "ProxyFromEnvironment"},
		"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	}
	for _, root := range []string{".", "admin", "internal", "store", "verify"} {
		for _, file := range goFiles(t, root) {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			names := map[string]string{}
			for _, im := range f.Imports {
				path := strings.Trim(im.Path.Value, `"`)
				name := path[strings.LastIndexByte(path, '/')+1:]
				if im.Name != nil {
					name = im.Name.Name
				}
				names[name] = path
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && x.Obj == nil {
					assert.NotContains(t, forbidden[names[x.Name]], s.Sel.Name, "%s: %s.%s", file, x.Name, s.Sel.Name)
				}
				return true
			})
		}
	}
}

// goFiles lists the library's own files under root: of the module's directory only
// those in it, elsewhere all but package egress and what serves tests.
func goFiles(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return fs.SkipAll // not there yet
			}
			return err
		}
		switch {
		case d.IsDir() && path == filepath.Join("internal", "egress"), d.IsDir() && root == "." && path != ".", d.IsDir() && strings.HasSuffix(path, "test"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, path)
		}
		return nil
	})
	require.NoError(t, err)
	return files
}
