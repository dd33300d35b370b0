package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is how long anything may take on a slow machine.
const patience = 45 * time.Second

// browser is one Chromium for all tests; each window is a profile of its own, with
// cookies of its own.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	options := append(
		chromedp.DefaultExecAllocatorOptions[:],
		chromedp.WSURLReadTimeout(patience),
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("lang", "en-GB"),
		chromedp.Env("TZ=UTC"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox does not run as root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	ctx, closeBrowser := chromedp.NewContext(allocator)
	defer closeBrowser()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Chromium does not start; `make test-browser` installs it:", err)
		return 1
	}
	browser = ctx //nolint:fatcontext // no loop: this is the one browser of all tests
	return m.Run()
}

// window is a browser's window in a test.
type window struct {
	t    *testing.T
	ctx  context.Context
	base string // of the host

	mu       sync.Mutex
	troubles []string // what the browser complained of
}

// open opens a window and logs in. The test fails if the browser complains of anything,
// such as a script that the content security policy forbids.
func (w *world) open(who string) *window {
	w.t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	p := &window{t: w.t, ctx: ctx, base: w.server.URL}
	w.t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Empty(w.t, p.troubles, "the browser complains")
	})
	require.NoError(w.t, chromedp.Listen(ctx, p.listen))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(w.t, err)
	_, err = chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	require.NoError(w.t, err)
	if who != "" {
		p.visit("/login?as=" + who)
	}
	return p
}

func (p *window) listen(event any) {
	trouble := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		trouble = fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *log.EventEntryAdded:
		// A page that says 404 or 422 is what some tests ask for.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			trouble = e.Entry.Text
		}
	case *cdppage.EventJavascriptDialogOpening:
		trouble = "a dialog: " + e.Message
	}
	if trouble != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.troubles = append(p.troubles, trouble)
	}
}

// visit goes to a path of the host.
func (p *window) visit(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, chromedp.Navigate(p.base+path)), "visit %s", path)
}

// helpers are what scripts here have at hand.
const helpers = `
	const words = (e) => (e.innerText ?? "").replace(/\s+/g, " ").trim();
	const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
	const named = (text) => [...document.querySelectorAll("a, button, summary")].find((e) => shown(e) && words(e) === text);
	const control = (text) => {
		const says = (l) => [...l.childNodes].filter((n) => n.nodeType === 3 || n.nodeName === "SPAN").map((n) => n.textContent).join(" ").replace(/\s+/g, " ").trim();
		const labels = [...document.querySelectorAll("label")].filter((l) => l.control);
		return (labels.find((l) => says(l) === text) ?? labels.find((l) => says(l).startsWith(text)))?.control;
	};
`

// attempt runs a script once; a page that is being left has none to run.
func attempt[T any](p *window, script string, args ...any) (T, error) {
	given, err := json.Marshal(append([]any{}, args...))
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](fmt.Sprintf("(() => {%s\nreturn (%s)(...%s)})()", helpers, script, given)))
}

// until runs a script again and again until it says true: a page comes, a part of it is
// renewed, a dispatcher gets to its work in its own time.
func (p *window) until(what, script string, args ...any) {
	p.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(40 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := attempt[bool](p, script, args...)
		if ok && err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			url, _ := attempt[string](p, `() => location.href`)
			text, _ := attempt[string](p, `() => document.body.innerText`)
			p.t.Fatalf("%s %q: not in time (%v). The page at %s says:\n%s", what, args, err, url, text)
		}
	}
}

// sees waits until the page shows a text.
func (p *window) sees(text string) {
	p.t.Helper()
	p.until("see", `(text) => document.readyState === "complete" && words(document.body).includes(text)`, text)
}

// seesNot waits until the page does not show a text.
func (p *window) seesNot(text string) {
	p.t.Helper()
	p.until("see no more", `(text) => document.readyState === "complete" && !words(document.body).includes(text)`, text)
}

// at waits until the window is at a path that ends so, and has loaded.
func (p *window) at(suffix string) {
	p.t.Helper()
	p.until("be at", `(suffix) => document.readyState === "complete" && location.pathname.endsWith(suffix)`, suffix)
}

// press clicks the link, button or summary that says so, once it can be seen and nothing
// lies over it.
func (p *window) press(text string) {
	p.t.Helper()
	p.until("press", `(text) => {
		const e = document.readyState === "complete" && named(text);
		if (!e) return false;
		e.scrollIntoView({ block: "center", behavior: "instant" });
		const r = e.getBoundingClientRect();
		const top = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
		if (!e.contains(top) && !top?.contains(e)) return false;
		e.click();
		return true;
	}`, text)
}

// fill types a text into the field with a label, in the place of what stood there.
func (p *window) fill(label, text string) {
	p.t.Helper()
	p.until("fill", `(label, text) => {
		const e = document.readyState === "complete" && control(label);
		if (!e || !shown(e)) return false;
		e.focus();
		e.select();
		document.execCommand(text === "" ? "delete" : "insertText", false, text);
		return e.value === text;
	}`, label, text)
}

// tick clicks the box or the button with a label.
func (p *window) tick(label string) {
	p.t.Helper()
	p.until("tick", `(label) => {
		const e = document.readyState === "complete" && control(label);
		if (!e) return false;
		e.click();
		return true;
	}`, label)
}

// choose chooses an option of the field with a label.
func (p *window) choose(label, option string) {
	p.t.Helper()
	p.until("choose", `(label, option) => {
		const e = document.readyState === "complete" && control(label);
		const o = e && [...e.options].find((o) => words(o) === option || o.textContent.trim() === option);
		if (!o) return false;
		e.value = o.value;
		e.dispatchEvent(new Event("input", { bubbles: true }));
		e.dispatchEvent(new Event("change", { bubbles: true }));
		return true;
	}`, label, option)
}

// ask returns what a script says.
func ask[T any](p *window, script string, args ...any) T {
	p.t.Helper()
	result, err := attempt[T](p, script, args...)
	require.NoError(p.t, err)
	return result
}

// narrow makes the window a phone's.
func (p *window) narrow() {
	require.NoError(p.t, chromedp.Do(p.ctx, chromedp.EmulateViewport(390, 844)))
}

// dark makes the reader one who prefers dark pages.
func (p *window) dark() { p.media("prefers-color-scheme", "dark") }

func (p *window) media(name, value string) {
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: name, Value: value}},
	})
	require.NoError(p.t, err)
}

// withoutScripts turns the page's own scripts off; those of a test still run.
func (p *window) withoutScripts() {
	_, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(p.t, err)
}

// key presses a key.
func (p *window) key(key string) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, chromedp.KeyEvent(key)))
}

// shot takes a picture of the page, where that is asked for: WEBHOOK_SCREENSHOTS is the
// directory. It is at most so high, and no field has the focus in it.
func (p *window) shot(name string, height int64) {
	p.t.Helper()
	dir := os.Getenv("WEBHOOK_SCREENSHOTS")
	if dir == "" {
		return
	}
	size := ask[[]float64](p, `() => {
		document.activeElement?.blur();
		scrollTo(0, 0);
		return [innerWidth, document.documentElement.scrollHeight];
	}`)
	beyond := true
	picture, err := chromedp.Call(p.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		CaptureBeyondViewport: &beyond,
		Clip:                  &cdppage.Viewport{Width: size[0], Height: min(size[1], float64(height)), Scale: 1},
	})
	require.NoError(p.t, err)
	require.NoError(p.t, os.MkdirAll(dir, 0o750))
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name+".png"), picture.Data, 0o600))
}
