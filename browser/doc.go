// Package browser tests the pages of package admin in a real browser: headless
// Chromium, driven over its debugging protocol. It is a module of its own, so that the
// driver reaches nobody's go.sum. `make test-browser` runs it and installs what is
// missing; `make screenshots` writes the pictures in docs/img.
package browser
