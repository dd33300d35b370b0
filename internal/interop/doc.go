// Package interop holds the tests that pit this library's signatures against the
// published Standard Webhooks library for Go. It is a module of its own, so that users of
// this library do not download that one.
package interop
